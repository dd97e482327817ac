"""A call that is valid, of which one argument is changed to nonsense, and what may come of it."""

import linecache
import math
import re
import traceback
from dataclasses import dataclass, is_dataclass
from functools import cached_property
from pathlib import Path

import torch

import tinydist

HOME = str(Path(tinydist.__file__).parent)
NONSENSE = {  # fresh each time: a call may change what it is given
    "-1": lambda: -1,
    "-3": lambda: -3,
    "0": lambda: 0,
    "10**20": lambda: 10**20,
    "-0.5": lambda: -0.5,
    "1.5": lambda: 1.5,
    "NaN": lambda: math.nan,
    "inf": lambda: math.inf,
    "-inf": lambda: -math.inf,
    "True": lambda: True,
    "a string": lambda: "nonsense",
    "an empty string": lambda: "",
    "None": lambda: None,
    "an empty list": list,
    "a list of strings": lambda: ["a", "b"],
    "a list of NaN": lambda: [math.nan],
    "an empty dict": dict,
    "an empty tensor": lambda: torch.empty(0),
    "a tensor of another shape": lambda: torch.ones(3, 1, 2),
    "a tensor of whole numbers": lambda: torch.ones(4, dtype=torch.int64),
    "a tensor of complex numbers": lambda: torch.ones(4, dtype=torch.complex64),
    "a function": lambda: print,
    "a class": lambda: int,
}
KINDS = {"a string", "an empty string", "a list of strings", "a function", "a class"}


@dataclass
class Call:
    """``function(**arguments())``: on this process, or on as many simulated ranks, each with its own arguments.

    ``kept``: arguments that stay as they are. ``fits``: those that may be text, or a function, or a class.
    ``signed``: its numbers may be negative.
    """

    function: object
    arguments: object = dict
    ranks: int = 0
    kept: tuple = ()
    signed: bool = False
    fits: tuple = ()

    @cached_property
    def names(self):
        return [name for name in self.on_ranks(self.arguments)[0] if name not in self.kept]

    def nonsense(self, name):
        """What is nonsense there: a function is none where one is taken, a string none for a name."""
        given = self.on_ranks(self.arguments)[0][name]
        fits = {"a function", "a class"} if callable(given) or name in self.fits else set()
        fits |= {"a string", "an empty string"} if isinstance(given, str) or name in self.fits else set()
        fits |= {"a list of strings"} if isinstance(given, list) and given and isinstance(given[0], str) else set()
        return [each for each in NONSENSE if each not in fits]

    def on_ranks(self, program):
        return tinydist.launch(program, self.ranks, observe=False).results if self.ranks else [program()]

    def with_nonsense(self, name, nonsense):
        """What came of it: a list of results, or the error."""

        def program():
            arguments = self.arguments()
            if name:
                arguments[name] = NONSENSE[nonsense]()
            return self.function(**arguments)

        try:
            return self.on_ranks(program)
        except Exception as error:
            return error


PYTHONS_OWN = re.compile(
    "not supported between|unsupported operand|is not iterable|not callable|has no len|cannot be interpreted as an int"
    "|must be real number|multiply sequence|not subscriptable|indices must be|unhashable|has no attribute"
    "|cannot convert float|invalid literal|could not convert string|bad operand|takes .* positional|missing .* argument"
    "|expected str, bytes|cannot unpack|not enough values|too many values|is not a mapping|int too large|is not an it"
    "|empty sequence|iterable argument is empty|ambiguous|must be an iterable, not|argument after|sequence item"
    "|unexpected keyword|can only concatenate|inhomogeneous|setting an array element|zip\\(\\) argument"
)


def is_ruled(error):
    """Does the error state a rule? One that our code raises, or torch, but none that Python has come upon inside."""
    if not isinstance(error, TypeError | ValueError | RuntimeError | NotImplementedError):
        return False
    if isinstance(error, RecursionError):
        return False
    frames = traceback.extract_tb(error.__traceback__)
    ours = frames and frames[-1].filename.startswith(HOME)
    raised = ours and linecache.getline(frames[-1].filename, frames[-1].lineno).strip().startswith("raise")
    return bool(raised) or not PYTHONS_OWN.search(str(error))


def numbers_in(result):
    if isinstance(result, bool):
        return
    if isinstance(result, int | float):
        yield result
    elif isinstance(result, torch.Tensor):
        yield from result.detach().flatten().tolist() if not result.is_complex() else ()
    elif isinstance(result, dict):
        yield from (number for each in result.values() for number in numbers_in(each))
    elif isinstance(result, list | tuple):
        yield from (number for each in result for number in numbers_in(each))
    elif is_dataclass(result) and not isinstance(result, type):
        yield from numbers_in(vars(result))


def is_sane(call, results):
    """No number is NaN, and none is negative where only amounts can come."""
    return all(call.signed or number >= 0 for number in numbers_in(results))
