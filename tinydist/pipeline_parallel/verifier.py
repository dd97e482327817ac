"""Verifies a schedule: the first violated rule is reported with its rank and step.

    place       each stage is on one rank, each rank has one, and stages and microbatches are those that there are
    once        each stage does each microbatch's F once, and its B, or its I and its W, once; and its R once at most;
                what ends a step is there for each step, of each stage or of each rank, or not at all
    order       on a rank, a pass comes after those it needs, a send after what it sends, a receive before that,
                R between F and backward, STEP between the last gradients of its step and the next step's F
    messages    each result that another rank needs is sent once and received once, and nothing else is; between two
                ranks, in one direction, messages are received in the order in which they are sent
    deadlock    no cycle of ranks that wait for each other
    memory      no rank holds more activations than it may

A schedule without sends and receives is judged without them: messages.py adds what keeps the rules.
"""

from ..rules import amount, shown, validate
from .analysis import analyze
from .messages import Pairing
from .replay import Stuck
from .schedule import (
    BACKWARD,
    BACKWARD_INPUT,
    COMPUTE,
    ENDING,
    FORWARD,
    MESSAGES,
    NORM,
    RECOMPUTE,
    Action,
    Overlap,
    Schedule,
    message_of,
    needs,
    result_of,
)
from .steps import comes_after, expected

NEAR = 4  # steps shown on either side of the place


class ScheduleError(ValueError):
    """``rule`` is broken on ``rank`` at ``step`` (None: by something that is missing)."""

    def __init__(self, schedule, rule, text, rank, step=None):
        self.rule, self.rank, self.step = rule, rank, step
        where = f"rank {rank}" + (f", step {step}" if step is not None else "")
        around = slice(0, 2 * NEAR) if step is None else slice(max(0, step - NEAR), step + NEAR + 1)
        table = schedule.grid(around.start, around.stop, mark=(rank, step))
        steps = f"steps from {around.start}:"
        super().__init__(f"{schedule.name}, {where}: {text} (rule: {rule})\n{steps}\n{table}")


@validate(schedule=Schedule, most_activations=amount)
def verify(schedule, most_activations=None):
    """Raise ``ScheduleError`` if ``schedule`` breaks a rule; else return it.

    ``most_activations``: of each rank, in microbatches of one stage, all of which stay until W.
    """
    check = Check(schedule)
    check.place()
    check.once()
    check.order()
    if schedule.has_messages:
        Pairing(check).check()
    check.deadlock()
    if most_activations is not None:
        check.memory(most_activations)
    return schedule


class Check:
    def __init__(self, schedule):
        self.schedule = schedule
        self.home = {}  # stage -> rank
        self.steps = {}  # action -> (rank, step), of the first such
        self.ends = False  # is there what ends a training step?

    def fail(self, rule, text, rank, step=None):
        raise ScheduleError(self.schedule, rule, text, rank, step)

    def place(self):
        S, M, K = self.schedule.stages, self.schedule.microbatches, self.schedule.steps
        if M % K:
            self.fail("place", f"{M} microbatches are not divisible into {K} training steps", 0)
        for rank, program in enumerate(self.schedule.programs):
            if not program:
                self.fail("place", "it has no stage", rank)
            for step, each in enumerate(program):
                if not isinstance(each, Action | Overlap):
                    where = f"{self.schedule.name}, rank {rank}, step {step}"
                    raise TypeError(f"{where}: it must be an action, got {shown(each)}")
                if len(each.parts) == 2 and (each.forward.kind != FORWARD or each.backward.kind not in "BI"):
                    self.fail("place", f"{each} is not a forward with a backward", rank, step)
        for rank, step, (stage, kind, microbatch) in self.schedule.all_parts():
            if kind not in (*COMPUTE, *MESSAGES, *ENDING, RECOMPUTE):
                self.fail("place", f"{Action(stage, kind, microbatch)} is not a known action", rank, step)
            ends = kind.removeprefix("SEND_").removeprefix("RECV_") in ENDING
            if not (0 <= stage < S and 0 <= microbatch < (K if ends else M)):
                there = f"stages 0 to {S - 1} and " + (f"steps 0 to {K - 1}" if ends else f"microbatches 0 to {M - 1}")
                self.fail("place", f"{Action(stage, kind, microbatch)}, but there are {there}", rank, step)
            if self.home.setdefault(stage, rank) != rank:
                text = f"stage {stage} is on rank {self.home[stage]}, and cannot also be here"
                self.fail("place", text, rank, step)
        for stage in range(S):
            if stage not in self.home:
                self.fail("place", f"stage {stage} is not placed on any rank", rank=min(stage, self.schedule.ranks - 1))

    def once(self):
        for rank, step, part in self.schedule.all_parts():
            same = result_of(part)
            before = self.steps.setdefault(part, (rank, step))
            twin = Action(part.stage, BACKWARD_INPUT if part.kind == BACKWARD else BACKWARD, part.microbatch)
            if part.kind not in MESSAGES and before != (rank, step):
                self.fail("once", f"{part} was already executed at step {before[1]}", rank, step)
            if same.kind == BACKWARD and twin in self.steps:
                self.fail("once", f"{twin}, at step {self.steps[twin][1]}, has done what {part} does", rank, step)
        for stage, rank in sorted(self.home.items()):
            for microbatch in range(self.schedule.microbatches):
                self._complete(stage, microbatch, rank)
        self._ended()

    def _ended(self):
        ending = {part for part in self.steps if part.kind in ENDING}
        wanted = expected(self.schedule) if ending else set()
        for part in sorted(wanted - ending):
            self.fail("once", f"{part} is missing", self.home[part.stage])
        for part in sorted(ending - wanted):
            self.fail("place", f"{part} is not of a rank's first stage", *self.steps[part])
        for part in sorted(part for part in ending if part.kind == NORM):
            if part.stage >= self.schedule.ranks:
                text = f"{part}: the norm passes down stages 0 to {self.schedule.ranks - 1}, which must be of all ranks"
                self.fail("place", text, *self.steps[part])
        self.ends = bool(ending)

    def _complete(self, stage, microbatch, rank):
        forward, backward, of_input, of_weight = (Action(stage, kind, microbatch) for kind in COMPUTE)
        steps = self.steps
        if forward not in steps:
            self.fail("once", f"{forward} is missing", rank)
        if backward not in steps and of_input not in steps:
            self.fail("once", f"{backward} is missing: neither it nor {of_input} is there", rank)
        if of_input in steps and of_weight not in steps:
            text = f"{of_weight} is missing: {of_input} leaves the weight gradients to it"
            self.fail("once", text, *steps[of_input])
        if backward in steps and of_weight in steps:
            text = f"{of_weight} does again what {backward} does at step {steps[backward][1]}"
            self.fail("once", text, *steps[of_weight])

    def order(self):
        for part, (rank, step) in self.steps.items():
            for before in self._needed_here(part) if part.kind not in MESSAGES else ():
                at = self.steps[before][1]
                if at > step:
                    self.fail("order", f"{part} needs {before}, which runs only at step {at}", rank, step)
                if at == step:
                    self.fail("order", f"{part} cannot overlap {before}, which it needs", rank, step)

    def _needed_here(self, part):
        """The passes of its own rank that must come before."""
        if part.kind in (BACKWARD, BACKWARD_INPUT, RECOMPUTE):
            yield part._replace(kind=FORWARD)
            if (again := part._replace(kind=RECOMPUTE)) in self.steps and again != part:
                yield again
        if self.ends:
            yield from filter(self.steps.__contains__, comes_after(part, self.schedule))
        result = needs(part, self.schedule.stages, self.schedule.ranks)
        if result and self.home[result.stage] == self.home[part.stage]:
            yield self.maker(result)

    def maker(self, result):
        """The pass that makes it: B, or I."""
        halved = result._replace(kind=BACKWARD_INPUT)
        return halved if result.kind == BACKWARD and halved in self.steps else result

    def deadlock(self):
        try:
            analyze(self.schedule)
        except Stuck as stuck:
            waits = dict(self._waits(stuck.steps))
            path = [min(waits)]
            while (following := waits[path[-1]][1]) not in path:
                path.append(following)
            circle = path[path.index(following) :]
            words = [
                f"rank {rank} waits in {waits[rank][0]} for {waits[rank][2]} of rank {waits[rank][1]}"
                for rank in circle
            ]
            self.fail("deadlock", "; ".join(words), circle[0], stuck.steps[circle[0]])

    def _waits(self, steps):
        """Rank -> (the blocked pass, the rank it waits for, the result it needs)."""
        reached = {
            part
            for rank, program in enumerate(self.schedule.programs)
            for each in program[: steps.get(rank)]
            for part in each.parts
        }
        for rank, step in steps.items():
            for part in self.schedule.programs[rank][step].parts:
                result = needs(part, self.schedule.stages, self.schedule.ranks)
                if result and self.home[result.stage] != rank:
                    awaited = message_of(result)[0] if self.schedule.has_messages else self.maker(result)
                    if awaited not in reached:
                        yield rank, (part, self.home[result.stage], awaited)

    def memory(self, most):
        analysis = analyze(self.schedule)
        for rank, live in enumerate(analysis.live):
            over = (live > most + 1e-9).nonzero()[0]
            if len(over):
                step = int(over[0])
                held = f"it holds {live[step]:g} activations in {self.schedule.programs[rank][step]}"
                self.fail("memory", f"{held}, of at most {most:g}", rank, step)
