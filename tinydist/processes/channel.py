"""Messages through a pipe: a length, and a pickle of (kind, content)."""

import cloudpickle


def send(stream, kind, content):
    message = cloudpickle.dumps((kind, content))
    stream.write(len(message).to_bytes(8, "big"))
    stream.write(message)
    stream.flush()


def receive(stream):
    size = int.from_bytes(stream.read(8), "big")
    message = stream.read(size)
    if not message or len(message) < size:  # the other side ended, maybe in the middle
        raise EOFError
    return cloudpickle.loads(message)
