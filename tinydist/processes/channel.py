"""Messages through a pipe: pickles of (kind, content), one after another. Large bytes are not copied."""

from pickle import UnpicklingError

import cloudpickle


def send(stream, kind, content):
    cloudpickle.dump((kind, content), stream)
    stream.flush()


def receive(stream):
    try:
        return cloudpickle.load(stream)
    except UnpicklingError:  # the other side ended in the middle
        raise EOFError from None
