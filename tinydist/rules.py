"""Argument validation. Each rule is a predicate, defined once; its docstring is the text of the error. Public functions
declare the rules of their arguments:

    @validate(nbytes=amount, ranks=count)
    def share(nbytes, ranks): ...

    share(8, 0)        ValueError: share: ranks must be an integer >= 1, got 0

A class is a rule, too (and to break it a TypeError). A default is always valid. A class is held
to the rules of its constructor. On ranks, launch adds which rank it was.
"""

import math
import sys
from collections.abc import Iterable, Mapping, Sized
from functools import wraps
from inspect import signature
from itertools import chain
from numbers import Integral, Real
from types import GenericAlias, NoneType, UnionType
from typing import get_args

LARGEST = sys.float_info.max  # what a whole number may be to become a float


def validate(**rules):
    """Decorator for a function or class: validate the named arguments."""

    def hold(called):
        if isinstance(called, type):
            called.__init__ = hold(called.__init__)
            return called
        parameters = signature(called).parameters
        defaults = {name: each.default for name, each in parameters.items()}
        names = [name for name, each in parameters.items() if each.kind is each.POSITIONAL_OR_KEYWORD]

        @wraps(called)
        def checked(*args, **options):
            for name, value in chain(zip(names, args), options.items()):
                if name in rules and value is not defaults[name] and not holds(rules[name], value):
                    made = called.__name__ == "__init__"
                    operation = type(args[0]).__name__ if made else called.__qualname__
                    raise broken(operation, name, rules[name], value, optional=defaults[name] is None)
            return called(*args, **options)

        return checked

    return hold


def holds(rule, value):
    if isinstance(rule, GenericAlias):  # type[Optimizer]
        return isinstance(value, type) and issubclass(value, get_args(rule))
    return isinstance(value, rule) if isinstance(rule, type | UnionType) else rule(value)


def must(operation, name, rule, value):
    """Validate ``value`` inside a function's body."""
    if not holds(rule, value):
        raise broken(operation, name, rule, value)
    return value


def broken(operation, name, rule, value, optional=False):
    """The error that says so."""
    words = words_of(rule) + (" or None" if optional else "")
    error = TypeError if isinstance(rule, type | UnionType | GenericAlias) else ValueError
    return error(f"{operation}: {name} must be {words}, got {shown(value)}")


def words_of(rule):
    if isinstance(rule, GenericAlias):
        return f"a subclass of {get_args(rule)[0].__name__}"
    if isinstance(rule, UnionType):
        return " or ".join(map(words_of, get_args(rule)))
    if isinstance(rule, type):
        article = "an" if rule.__name__[0] in "AEIOaeio" else "a"
        return "None" if rule is NoneType else f"{article} {rule.__name__}"
    return rule.__doc__


def shown(value):
    """In a few words, whatever it is."""
    if is_tensor(value):
        return f"a tensor {list(value.shape)} of {value.dtype}"
    text = repr(value)
    return text if len(text) <= 60 and "\n" not in text else f"a {type(value).__name__}"


def ranks_in_words(ranks):
    """'rank 3', 'ranks 0-2, 5'."""
    spans = []
    for rank in sorted(ranks):
        if spans and rank == spans[-1][1] + 1:
            spans[-1][1] = rank
        else:
            spans.append([rank, rank])
    words = ", ".join(str(first) if first == last else f"{first}-{last}" for first, last in spans)
    return f"rank{'s' if len(ranks) != 1 else ''} {words}"


def is_tensor(value):
    torch = sys.modules.get("torch")  # without it there are none
    return torch is not None and isinstance(value, torch.Tensor)


# Numbers. True is none.


def number(value):
    """a number"""
    if type(value) is float:  # the most frequent first: a replay asks for each operator
        return True
    if type(value) is int or isinstance(value, Integral):
        return not isinstance(value, bool) and abs(value) <= LARGEST
    return isinstance(value, Real)


def finite(value):
    """a finite number"""
    return number(value) and -math.inf < value < math.inf


def amount(value):
    """a finite number >= 0"""
    return number(value) and 0 <= value < math.inf


def positive(value):
    """a finite number > 0"""
    return number(value) and 0 < value < math.inf


def rate(value):
    """a number > 0"""
    return number(value) and value > 0


def integer(value):
    """an integer"""
    return type(value) is int or (isinstance(value, Integral) and not isinstance(value, bool))


def whole(value):
    """an integer >= 0"""
    return integer(value) and value >= 0


def count(value):
    """an integer >= 1"""
    return whole(value) and value >= 1


def count_or_none(value):
    """an integer >= 1, or None"""
    return value is None or count(value)


def power_of_2(value):
    """a power of 2"""
    return count(value) and value & (value - 1) == 0


def part(value):
    """a number from 0 to 1"""
    return number(value) and 0 <= value <= 1


def within(least, most):
    """An integer from ``least`` to ``most``."""
    return stated(f"an integer from {least} to {most}", lambda value: whole(value) and least <= value <= most)


# What is no number.


def flag(value):
    """True or False"""
    return isinstance(value, bool)


def function(value):
    """a function"""
    return callable(value)


def floats(value):
    """a floating-point tensor"""
    return is_tensor(value) and value.is_floating_point()


def one_of(choices):
    """One of them."""
    return stated(f"one of {', '.join(map(str, choices))}", lambda value: isinstance(value, str) and value in choices)


def each_of(rule, least=1):
    """A list of what is so."""
    words = f"a{' non-empty' if least else ''} list, each item {words_of(rule)}"
    return stated(words, lambda values: many(values) and len(values) >= least and all(holds(rule, v) for v in values))


def named(rule):
    """A dict of what is so, one at least."""
    words = f"a non-empty dict, each value {words_of(rule)}"
    return stated(words, lambda given: isinstance(given, Mapping) and each_of(rule)([*given.values()]))


def several(value):
    """an iterable"""
    return isinstance(value, Iterable) and not isinstance(value, str | Mapping) and getattr(value, "ndim", 1) > 0


def many(value):
    """a list"""
    return several(value) and isinstance(value, Sized)


def stated(words, rule):
    rule.__doc__ = words
    return rule


# Ranks, parts, layers, of which each is written down: more is a slip, and takes all memory.
listed = within(1, 2**20)
