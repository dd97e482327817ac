"""Schedules that an answer writes: it is asked for the actions of every rank; they are read, and verified.

Sends and receives are left to the library, which posts them ahead: so an order of passes is all that there is to say.
"""

from collections.abc import Iterable
from functools import partial
from itertools import islice

from ....pipeline_parallel import Action, Schedule, ScheduleError, analyze, parse, verify
from ....pipeline_parallel.actions import MESSAGES
from ...alone import input_of
from ...errors import Wrong, indented
from ...own_work import Watched, calls_none_of
from ...ranks import Trials
from ...values import kind
from ...verdict import Property

SOLVED = {
    "tinydist.pipeline_parallel.schedules": "the library's schedules",
    "tinydist.pipeline_parallel.torch_csv": "torch's schedules",
    "torch.distributed.pipelining": "torch.distributed.pipelining",
}
MANY = 12  # actions for each microbatch of a stage: three at most are right


def setting(ranks, microbatches, **more):
    """The answer is asked on one rank, about a pipeline of another size."""
    size = {"ranks": ranks, "microbatches": microbatches, **more}
    about = ", ".join(f"{name}={number}" for name, number in size.items())
    numbers = tuple(size.values())
    stages = more.get("chunks", 1)  # a rank
    return input_of(lambda: numbers, about, numbers, kind=stages)


def ask(answer, kinds, ranks, microbatches, *more):
    """The programs of all ranks."""
    most = MANY * microbatches * max([1, *more])
    return [program_of(answer, rank, kinds, most, ranks, microbatches, *more) for rank in range(ranks)]


def program_of(answer, rank, kinds, most, ranks, *more):
    try:
        given = answer(rank, ranks, *more)
        if isinstance(given, str) or not isinstance(given, Iterable):
            raise Wrong(
                f"for rank {rank} it returned {kind(given)}, where actions are right: yield '{rank}F0', or return a "
                "list of them"
            )
        given = list(islice(given, most + 1))
    except BaseException as error:
        error.add_note(f"on rank {rank} of {ranks}")  # that it was asked for
        raise
    if not given:
        raise Wrong(f"for rank {rank} it gives no actions: every rank has a part of the work")
    if len(given) > most:
        raise Wrong(f"for rank {rank} it gives more than {most} actions: does it ever end?")
    return tuple(read(each, rank, step, kinds) for step, each in enumerate(given))


def read(each, rank, step, kinds):
    try:
        action = each if isinstance(each, Action) else parse(each)
    except (ValueError, AttributeError, TypeError):
        action = None
    where = f"for rank {rank}, action {step} is {str(each)[:40]!r}"
    if not isinstance(action, Action):
        raise Wrong(f"{where}: an action is written [stage][kind][microbatch], as in '{rank}F0'")
    if action.kind in MESSAGES:
        raise Wrong(f"{where}: write the passes alone. Sends and receives are added to them")
    if action.kind not in kinds:
        raise Wrong(f"{where}: here the kinds of passes are {', '.join(kinds)}")
    return action


class Programs(Trials):
    """``kinds``: of passes that are used."""

    def __init__(self, answer, settings, kinds="FB"):
        self.name = answer.__name__
        super().__init__(Watched(partial(ask, answer, kinds)), settings)

    def schedule(self, trial):
        ranks, microbatches, *_ = trial.case.expected
        return Schedule(self.name, tuple(trial.returned[0]), ranks * trial.case.kind, microbatches)

    def each_schedule(self, judge, among=lambda case: True):
        """A judge: ``judge(schedule, *size)`` finds nothing wrong with the schedule of any setting."""
        return self.each(lambda trial: judge(self.schedule(trial), *trial.case.expected), among)


def first_properties(programs, advice=lambda schedule, error, *size: ""):
    """``advice(schedule, error, *size)``: what else to say of a schedule that is rejected."""
    own_work = calls_none_of(programs.answer, SOLVED, "write the order of passes yourself")
    yield Property("own work", "none of the schedules that there are", programs.each(own_work))
    yield Property("runs", "it gives the actions of every rank", programs.end)
    yield Property("verified", "the verifier finds no rule broken", programs.each_schedule(partial(verified, advice)))


def verified(advice, schedule, *size):
    in_their_place(schedule)
    try:
        verify(schedule)
    except ScheduleError as error:
        said, *table = str(error).splitlines()
        parts = [said, indented("\n".join(table)), advice(schedule, error, *size)]
        raise Wrong("\n".join(filter(None, parts))) from None


def in_their_place(schedule):
    """Rank r has the stages r, r + P, ..."""
    for rank, step, action in schedule.all_parts():
        mine = [str(stage) for stage in range(rank, schedule.stages, schedule.ranks)]
        if str(action.stage) not in mine:
            has = f"stage{'s' * (len(mine) > 1)} {', '.join(mine)}"
            raise Wrong(f"rank {rank} does {action} at step {step}, where it has {has}")


def drawn(schedule, costs=None):
    """What draws it."""

    def draw():
        from ....visuals import schedule as picture  # only now: matplotlib takes its time

        return picture(analyze(schedule, costs))

    return draw
