"""Schedules that an answer writes: it is asked for the actions of every rank; they are read, verified, and timed.

Sends and receives are left to the library, which posts them ahead: so an order of passes is all that there is to say.
"""

import re
import textwrap
from collections.abc import Iterable
from itertools import islice
from math import ceil

from tinydist.lab.author import Own, Target, Wrong, alone, kind, many
from tinydist.pipeline_parallel import Action, Costs, Schedule, ScheduleError, analyze, parse, verify
from tinydist.pipeline_parallel.schedule import BACKWARD_INPUT, BACKWARD_WEIGHT, MESSAGES

from .order import odd

OWN = Own(
    "none of the schedules that there are",
    "write the order of passes yourself",
    {
        "tinydist.pipeline_parallel.schedules": "the library's schedules",
        "tinydist.pipeline_parallel.schedule_search": "the library's search",
        "tinydist.pipeline_parallel.list_scheduler": "the library's scheduler",
        "tinydist.pipeline_parallel.torch_csv": "torch's schedules",
        "torch.distributed.pipelining": "torch.distributed.pipelining",
    },
)
MANY = 12  # actions for each microbatch of a stage: three at most are right


def setting(ranks, microbatches, **more):
    """The answer is asked on one rank, about a pipeline of this size."""
    size = {"ranks": ranks, "microbatches": microbatches, **more}
    about = ", ".join(f"{name}={number}" for name, number in size.items())
    return alone(lambda: tuple(size.values()), about, facts=ranks * more.get("chunks", 1))


def asked(kinds="FB"):
    """A program: the answer gives the actions of all ranks, each of one of ``kinds``."""

    def ask(answer, ranks, microbatches, *more):
        most = MANY * microbatches * max([1, *map(ceil, more)])
        return [actions_of(answer, rank, kinds, most, ranks, microbatches, *more) for rank in range(ranks)]

    return ask


def actions_of(answer, rank, kinds, most, ranks, *more):
    try:
        given = answer(rank, ranks, *more)
        if isinstance(given, str) or not isinstance(given, Iterable):
            raise Wrong(
                f"for rank {rank} it returned {kind(given)}, where actions are right: yield '{rank}F0', or return a "
                "list of them"
            )
        given = list(islice(given, most + 1))
    except BaseException as error:
        error.add_note(f"on rank {rank} of {ranks}")  # that it was requested
        raise
    if not given:
        raise Wrong(f"for rank {rank} it gives no actions: every rank has a part of the work")
    if len(given) > most:
        raise Wrong(f"for rank {rank} it gives more than {most} actions: does it ever end?")
    return tuple(read(each, rank, step, kinds) for step, each in enumerate(given))


def read(each, rank, step, kinds):
    try:
        action = parse(str(each)) if isinstance(each, str | Action) else None
    except ValueError:
        action = None
    where = f"for rank {rank}, action {step} is {str(each)[:40]!r}"
    if re.fullmatch(r"\d+[A-Z]-\d+", str(each)):
        raise Wrong(f"{where}: microbatches count from 0. There may be fewer of them than ranks")
    if not isinstance(action, Action):
        raise Wrong(f"{where}: an action has the form [stage][kind][microbatch], as in '{rank}F0'")
    if action.kind in MESSAGES:
        raise Wrong(f"{where}: write the passes alone. Sends and receives are added to them")
    if action.kind not in kinds:
        raise Wrong(f"{where}: here the kinds of passes are {', '.join(kinds)}")
    return action


class OfSchedule(Target):
    """``look(mine, its, *size)`` raises Wrong; ``its`` is the reference's schedule of that size."""

    decides = True

    def judge(self, exercise, trial, right):
        self.look(schedule(exercise, trial), schedule(exercise, right), *trial.arguments[0])

    def seen(self, trial):
        return None if trial.error is not None else trial.returned[0]

    def general(self, trial, right):
        return odd(*(each.returned[0] for each in (trial, right)))


def schedule(exercise, trial):
    _, microbatches, *_ = trial.arguments[0]
    return Schedule(exercise.name, tuple(trial.returned[0]), trial.case.facts, microbatches)


class Verified(OfSchedule):
    name = "verified"

    def look(self, mine, its, *size):
        for rank, step, action in mine.all_parts():
            if action.stage not in its.stages_of(rank):
                has = f"stage{'s' * (len(its.stages_of(rank)) > 1)} {', '.join(map(str, its.stages_of(rank)))}"
                raise Wrong(f"rank {rank} does {action} at step {step}, where it has {has}")
        try:
            verify(mine)
        except ScheduleError as error:
            said, table = str(error).removeprefix(f"{mine.name}, ").split("\n", 1)
            raise Wrong(f"{said}\n{textwrap.indent(table, '  ')}") from None


class Held(OfSchedule):
    """No rank holds more activations than it does in the reference. ``told``: how their number is said."""

    name = "memory"

    def __init__(self, holds, told="of {:g} at most"):
        super().__init__(holds)
        self.told = told

    def look(self, mine, its, *size):
        for rank, (live, most) in enumerate(zip(analyze(mine).live, self.most(its, *size))):
            step = next((step for step, held in enumerate(live) if held > most), None)
            if step is not None:
                raise Wrong(
                    f"rank {rank} holds {many(int(live[step]), 'activation')} in {mine.programs[rank][step]} (step "
                    f"{step}), {self.told.format(most)}{waiting(mine.programs[rank][:step])}",
                    drawn(mine),
                )

    def most(self, its, *size):
        """By rank."""
        return analyze(its).peak


def waiting(program):
    """In words: how many have done I, and not W."""
    kinds = [action.kind for action in program]
    owed = kinds.count(BACKWARD_INPUT) - kinds.count(BACKWARD_WEIGHT)
    return f": {owed} of them {'waits' if owed == 1 else 'wait'} for W" if owed else ""


class Makespan(OfSchedule):
    """At most that of the reference, with each of ``costs`` (of a stage)."""

    def __init__(self, name, holds, *costs, advice=""):
        super().__init__(holds)
        self.name, self.costs, self.advice = name, costs, advice

    def look(self, mine, its, *size):
        for costs in self.costs_of(*size):
            took, right = (analyze(each, costs).makespan for each in (mine, its))
            if took > right + 1e-6:
                message = f" and {costs.message:g} s for a message" * (costs.message > 0)
                raise Wrong(
                    f"with F = {costs.forward:g} s and B = {costs.backward_input + costs.backward_weight:g} s of a "
                    f"stage{message} it takes {took:g} s, where {right:g} s are enough{self.advice}",
                    drawn(mine, costs),
                )

    def costs_of(self, *size):
        """The costs for a pipeline of this size."""
        return self.costs


def drawn(schedule, costs=None):
    """What draws it."""

    def draw():
        from tinydist.visuals import schedule as picture  # only now: matplotlib takes its time

        return picture(analyze(schedule, costs or Costs()))

    return draw
