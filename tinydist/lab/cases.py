"""Test cases in which an answer is run, and their results.

A ``Case`` is a number of ranks and what the answer is called with there; a ``Trial`` is a case that was run, with the
answer or with the reference.
"""

import contextlib
import io
import re
import tracemalloc
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cached_property

import torch
import torch.distributed as dist

from ..launching.launch import launch
from ..torch_internals import unobserved
from . import trusted_functions
from .errors import Left, Wrong
from .isolation import run_begins
from .leaves import nbytes
from .tracer import UNSEEN, TooLong, Tracer

FEW = 8  # numbers
IN_PLACE = ("all_reduce", "broadcast", "reduce")  # these write where they read


class Ended(Exception):
    """A rank ends the run for all, who may be anywhere: ``Ended(result)``, what each has returned."""


@dataclass(frozen=True, eq=False)
class Case:
    ranks: int
    arguments: Callable  # rank -> a tuple, made anew on that rank
    about: str = ""  # besides the number of ranks, as the learner reads it
    measured: bool = False  # bytes held and seconds are judged here
    changed: int | None = None  # the rank whose messages are perturbed
    facts: object = None  # whatever the exercise's own targets want
    rtol: float = 1e-4
    how: dict = field(default_factory=dict)  # options of launch
    by_value: bool = False  # are messages perturbed by their numbers' values, and not by their places?

    def __str__(self):
        ranks = f"{self.ranks} rank{'s' * (self.ranks > 1)}"
        return f"{ranks}, {self.about}" if self.about else ranks

    @property
    def kind(self):
        """What it has in common with cases of other ranks and sizes."""
        return re.sub(r"\d+", "", self.about), self.how


class Alone(Case):
    """One that needs no ranks, and whose messages name none."""

    def __str__(self):
        return self.about


def alone(arguments, about, **more):
    """``arguments()``: a tuple, made anew."""
    return Alone(1, lambda rank: arguments(), about, **more)


def turned(case):
    """The same world, where tensors are views: in memory their last two dims have changed places."""

    def arguments(rank):
        given = case.arguments(rank)
        return tuple(t.mT.contiguous().mT if isinstance(t, torch.Tensor) and t.dim() > 1 else t for t in given)

    return replace(case, arguments=arguments, about=f"{case.about}, transposed views")


class Trial:
    """``arguments`` and ``returned``: by rank, as they are after the run; ``given``: bytes of the arguments, before it.
    ``error``: what stopped it, or None; ``exercise``: the one whose answer is tried, or None."""

    def __init__(self, program, case, watched=True, listen="", observe=True):
        self.program, self.case = program, case
        how = {"observe": observe, **case.how}
        self.run = self.error = self.exercise = None
        self.elsewhere = {}  # case -> the same program there
        self.arguments, self.returned, self.given = (), (), [0] * case.ranks
        self.tracers = [Tracer(listen, counted=how["observe"] is True) for _ in range(case.ranks)] if watched else []
        printed = io.StringIO()
        run_begins()
        try:
            with contextlib.redirect_stdout(printed), warnings.catch_warnings():
                warnings.filterwarnings("ignore", "launch: all ranks have ended")  # the verdict says it better
                self.run = launch(self._rank, case.ranks, backend="simulated", **how)
            self.arguments, self.returned = zip(*self.run.results)
        except KeyboardInterrupt:
            raise
        except Ended as ended:
            self.returned = ended.args * case.ranks
        except BaseException as error:
            self.error = error
        self.printed = printed.getvalue().splitlines()
        if watched:
            self.error = self._not_allowed() or self.error

    def _rank(self):
        rank = dist.get_rank()
        arguments = self.case.arguments(rank)
        self.given[rank] = nbytes(arguments)
        changes = contextlib.nullcontext()
        if rank == self.case.changed:
            changes = perturbed_messages(by_value if self.case.by_value else by_place)
        try:
            with changes, self.tracers[rank] if self.tracers else contextlib.nullcontext():
                return arguments, self.program(*arguments)
        except SystemExit as end:
            raise Left from end

    def _not_allowed(self):
        """What an answer did that would fool the lab."""
        if any(tracer.passed for tracer in self.tracers) and not isinstance(self.error, TooLong):
            return TooLong()  # it has swallowed it
        replaced = trusted_functions.put_back()
        if replaced:
            return Wrong(f"it replaces {replaced[0]}, with which the lab measures: leave it as it is")
        if any(tracer.unseen for tracer in self.tracers):
            return Wrong("it switches torch's dispatch off, so what it computes and holds is not seen: leave it on")
        for name in UNSEEN.keys() & self.called:
            return Wrong(f"it starts {UNSEEN[name]} ({name}): write it in the function itself")
        return None

    @cached_property
    def called(self):
        """Names of functions, from their modules on."""
        return set().union(*(tracer.called for tracer in self.tracers))

    @cached_property
    def torchs(self):
        return set().union(*(tracer.torchs for tracer in self.tracers))

    @property
    def stubbed(self):
        """A rank came to a bare ``raise NotImplementedError``."""
        return isinstance(self.error, NotImplementedError) and not self.error.args

    def who(self, rank):
        return "it" if self.case.ranks == 1 else f"rank {rank}"

    def where(self, rank, path):
        return f"{'' if self.case.ranks == 1 else f'on rank {rank} '}{path or 'the result'}"

    def there(self, case):
        """The same program in another case of its exercise; kept."""
        if case is not self.case and case not in self.elsewhere:
            self.elsewhere[case] = Trial(self.program, case)
        return self if case is self.case else self.elsewhere[case]

    def again(self, watched=False, **changes):
        """The same in another world."""
        return Trial(self.program, replace(self.case, **changes), watched)


def outside_of_tensors(trial, watched=True):
    """Bytes at their peak that the process took besides tensors, while the trial was run once more."""
    traced = tracemalloc.is_tracing()
    if not traced:
        tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        tracemalloc.reset_peak()
        trial.again(watched, how={**trial.case.how, "observe": False})  # the record takes memory, too
        return tracemalloc.get_traced_memory()[1] - before
    finally:
        if not traced:
            tracemalloc.stop()


@contextlib.contextmanager
def perturbed_messages(factors):
    """Context: messages of this rank are perturbed in all groups, including those that it creates in the body.

    Do results depend only on received data? Ranks of a check are threads, and could as well read a global variable. So
    in one case one rank's messages are perturbed in transit, each element by its own factor, for the answer and for the
    reference: results must change accordingly. Integers are left alone, and so are short tensors of integral values of
    any dtype: they are counts, sizes or flags, which answers may send as they like. ``factors``: ``by_place``, which
    an answer may scale before it sends it, or ``by_value``, which it may send in whatever buckets.
    """
    mine = dist.group.WORLD  # this rank's own handle
    handles = type(mine)
    post, meet = handles._post, handles._meet

    def is_mine(group):
        return group.simulation is mine.simulation and group.owner == mine.owner

    def post_perturbed(group, name, tensors, *others):
        if name == "send" and is_mine(group):
            tensors = perturbed_in(tensors, factors)
        return post(group, name, tensors, *others)

    def meet_perturbed(group, name, move, alike_everywhere, inputs, *others, **how):
        if is_mine(group) and name in IN_PLACE:
            for tensor in inputs:
                with unobserved():
                    tensor.data.copy_(perturbed(tensor, factors))
        elif is_mine(group):
            inputs = perturbed_in(inputs, factors)
        return meet(group, name, move, alike_everywhere, inputs, *others, **how)

    handles._post, handles._meet = post_perturbed, meet_perturbed
    try:
        yield
    finally:
        del handles._post, handles._meet  # those of its base are there again


def perturbed_in(inputs, factors):
    if isinstance(inputs, torch.Tensor):
        return perturbed(inputs, factors)
    return [perturbed_in(each, factors) for each in inputs]


def perturbed(tensor, factors):
    """A copy."""
    with unobserved():
        if not tensor.is_floating_point() or (tensor.numel() <= FEW and bool((tensor == tensor.round()).all())):
            return tensor
        return (tensor.detach() * factors(tensor.detach())).to(tensor.dtype)


def by_place(tensor):
    """Factors from 1/2 to 2 that go by the place in the tensor: the same in each that is sent."""
    return 2 ** (2 * torch.rand(tensor.numel(), generator=torch.Generator().manual_seed(1)) - 1).view(tensor.shape)


def by_value(tensor):
    """Factors from 1/2 to 2 that go by the number: the same wherever it stands. They oscillate with its logarithm, so
    that numbers of each magnitude have unlike ones, and rounding moves them little."""
    sizes = tensor.double().abs()
    return 2 ** torch.sin(16 * torch.where(sizes > 0, sizes, 1).log())
