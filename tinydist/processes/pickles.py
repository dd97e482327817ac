"""Serializes a call: names the part of it that cannot be pickled; sends messages through a pipe.

Notebook functions are pickled by value. Large bytes are not copied.
"""

import inspect
from pickle import UnpicklingError

import cloudpickle


def name_of(fn):
    return getattr(fn, "__name__", repr(fn))


def pack(fn, args):
    """The call as bytes. In one piece: what two arguments share they share in the worker too."""
    try:
        return cloudpickle.dumps((fn, args))
    except Exception as error:
        raise TypeError(f"launch: {culprit(fn, args)} is not picklable: {error}") from None


def culprit(fn, args):
    """The smallest part of a call that cannot be pickled, in words."""
    name = name_of(fn)
    parts = {f"argument {number} of {name}": arg for number, arg in enumerate(args)}
    if inspect.isfunction(fn):
        outer = inspect.getclosurevars(fn)
        variables = outer.nonlocals | outer.globals
        parts |= {f"{word!r}, which {name} uses,": value for word, value in variables.items()}
    return next((words for words, part in parts.items() if not can_travel(part)), name)


def can_travel(part):
    try:
        return bool(cloudpickle.dumps(part))
    except Exception:
        return False


def send(stream, kind, content):
    cloudpickle.dump((kind, content), stream)
    stream.flush()


def receive(stream):
    try:
        return cloudpickle.load(stream)
    except UnpicklingError:  # the other side ended in the middle
        raise EOFError from None
