"""A call as bytes: a notebook's functions travel by value, and what cannot travel is named."""

import inspect

import cloudpickle


def name_of(fn):
    return getattr(fn, "__name__", repr(fn))


def pack(fn, args):
    """The call as bytes. In one piece: what two arguments share they share in the worker too."""
    try:
        return cloudpickle.dumps((fn, args))
    except Exception as error:
        raise TypeError(f"launch: {culprit(fn, args)} cannot be sent to a process: {error}") from None


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
