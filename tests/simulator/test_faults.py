"""Random programs of collectives and messages, right ones and ones in which one rank makes one mistake.

A program is a list of steps in an order that all ranks keep, each doing the steps that it takes part in: whatever
is issued without being waited for at once, somebody can always go on. So a right program runs. With a mistake on
one rank, somebody must be left waiting for that rank, or stand opposite a call that does not fit his own.
"""

import re
import sys
import threading
import time
from random import Random
from typing import NamedTuple

import pytest
import torch
import torch.distributed as dist

import tinydist
from tinydist import StuckError
from tinydist.simulator.deadlock import DeadlockError
from tinydist.simulator.matching import MismatchError

ROOTED = ("broadcast", "reduce", "gather", "scatter")
REDUCING = ("all_reduce", "reduce", "reduce_scatter")
COLLECTIVES = ("barrier", "all_gather", "all_to_all", *REDUCING, "broadcast", "gather", "scatter")
REDUCTIONS = ("SUM", "PRODUCT", "MIN", "MAX")
DTYPES = (torch.float32, torch.float64, torch.int64)


class Step(NamedTuple):
    """A collective of the ranks of a group, or a message from the first of two ranks to the second."""

    name: str
    ranks: tuple
    group: int  # which of the program's groups
    root: int
    reduction: str
    dtype: torch.dtype
    size: int
    tag: int
    delays: tuple  # by rank of the world: after how many further steps it waits. 0: the call itself blocks

    def issue(self, number, groups):
        """The work, or None if it was waited for, and the tensors that hold what this rank receives."""
        rank, later = dist.get_rank(), self.delays[dist.get_rank()] > 0
        mine = torch.full((self.size,), 10 * number + rank).to(self.dtype)
        if self.name == "message":
            source, destination = self.ranks
            if rank == source:
                return (dist.isend if later else dist.send)(mine, destination, tag=self.tag), []
            work = (dist.irecv if later else dist.recv)(mine, source, tag=self.tag)
            return (work if later else None), [mine]
        call, outputs = self.collective(mine, rank == self.root)
        return call(group=groups[self.group], async_op=later), outputs

    def collective(self, x, at_root):
        pieces = [x * (index + 1) for index in range(len(self.ranks))]
        outputs = [torch.zeros_like(x) for _ in self.ranks]
        op, root = getattr(dist.ReduceOp, self.reduction), self.root
        match self.name:
            case "barrier":
                return dist.barrier, []
            case "all_reduce":
                return lambda **how: dist.all_reduce(x, op, **how), [x]
            case "reduce":
                return lambda **how: dist.reduce(x, root, op, **how), [x] if at_root else []
            case "broadcast":
                return lambda **how: dist.broadcast(x, root, **how), [x]
            case "all_gather":
                return lambda **how: dist.all_gather(outputs, x, **how), outputs
            case "gather":
                return lambda **how: dist.gather(
                    x, outputs if at_root else None, root, **how
                ), outputs if at_root else []
            case "scatter":
                return lambda **how: dist.scatter(outputs[0], pieces if at_root else None, root, **how), outputs[:1]
            case "reduce_scatter":
                return lambda **how: dist.reduce_scatter(outputs[0], pieces, op, **how), outputs[:1]
            case "all_to_all":
                return lambda **how: dist.all_to_all(outputs, pieces, **how), outputs


class Program(NamedTuple):
    world: int
    groups: tuple  # the ranks of each; the first is the world
    steps: tuple


class Fault(NamedTuple):
    kind: str
    number: int  # of the step
    rank: int
    instead: Step | None  # what that rank does there


class Planted(Exception):
    pass


def run(program, fault=None):
    """What this rank has received, by step."""
    rank = dist.get_rank()
    groups = [None] + [dist.new_group(ranks) for ranks in program.groups[1:]]
    received, pending = {}, []  # pending: (when to wait, work)
    for number, step in enumerate(program.steps):
        for due, work in pending:
            if due == number:
                work.wait()
        if rank not in step.ranks:
            continue
        if fault and (number, rank) == (fault.number, fault.rank):
            if fault.kind == "returns early":
                return received
            if fault.kind == "raises":
                raise Planted(program.world)
            if fault.kind in ENDS:
                ENDS[fault.kind]()
            if fault.kind == "skips a call":
                continue
            step = fault.instead
        work, received[number] = step.issue(number, groups)
        if work:
            pending.append((number + step.delays[rank], work))
    for due, work in reversed(pending):
        if due >= len(program.steps):
            work.wait()
    return {number: [tensor.tolist() for tensor in tensors] for number, tensors in received.items()}


# Faults that are no calls of torch.distributed.


def sleeps():
    while True:
        time.sleep(0.01)


def computes():
    while True:
        pass


def interrupts():
    raise KeyboardInterrupt


def fails_while_it_is_freed():
    class Fails:
        def __del__(self):
            raise Planted

    Fails()


def starts_a_thread_that_never_ends():
    threading.Thread(target=threading.Event().wait, daemon=True).start()


HARMLESS = {end.__name__: end for end in (fails_while_it_is_freed, starts_a_thread_that_never_ends)}
STUCK = {end.__name__: end for end in (sleeps, computes)}
LEAVES = {"exits": lambda: sys.exit(3), "interrupts": interrupts}
ENDS = {**HARMLESS, **STUCK, **LEAVES, "leaves": sys.exit}


# Making them.

ANY = (*COLLECTIVES, "message")
WITH_DATA = tuple(name for name in ANY if name != "barrier")
FAULTS = {  # kind -> the steps in which it can be
    "skips a call": ANY,
    "returns early": ANY,
    "leaves": ANY,
    "raises": ANY,
    "other operation": ANY,
    "other shape": WITH_DATA,
    "other dtype": WITH_DATA,
    "other root": ROOTED,
    "other reduction": REDUCING,
    "wrong peer": ("message",),
    "wrong tag": ("message",),
}
# Of each:
CASES = pytest.mark.parametrize("cases", [range(12), pytest.param(range(12, 100), marks=pytest.mark.exhaustive)])


def right_program(random, including=ANY):
    """One step at least is one of ``including``."""
    world = random.randint(3, 5)
    groups = [tuple(range(world))]
    groups += [tuple(sorted(random.sample(groups[0], random.randint(2, world)))) for _ in range(random.randint(0, 2))]
    names = random.choices((*COLLECTIVES, *["message"] * 6), k=random.randint(0, 12))
    names.insert(random.randint(0, len(names)), random.choice(including))
    return Program(world, tuple(groups), tuple(a_step(random, name, groups) for name in names))


def a_step(random, name, groups):
    group = random.randrange(len(groups))
    ranks = tuple(random.sample(groups[0], 2)) if name == "message" else groups[group]
    return Step(
        name=name,
        ranks=ranks,
        group=group,
        root=random.choice(ranks),
        reduction=random.choice(REDUCTIONS),
        dtype=random.choice(DTYPES),
        size=random.randint(0, 3),
        tag=random.randint(0, 1),
        delays=tuple(random.choice((0, 0, 1, 2, 3, 99)) for _ in groups[0]),
    )


def faulty_program(random, kind):
    program = right_program(random, including=FAULTS[kind])
    number = random.choice([number for number, step in enumerate(program.steps) if step.name in FAULTS[kind]])
    step = program.steps[number]
    rank = random.choice(step.ranks)
    return program, Fault(kind, number, rank, altered(random, kind, step, rank, program.groups[0]))


def a_fault(random, kind, program):
    number = random.randrange(len(program.steps))
    return Fault(kind, number, random.choice(program.steps[number].ranks), program.steps[number])


def altered(random, kind, step, rank, world):
    def other(values, *than):
        return random.choice([value for value in values if value not in than])

    match kind:
        case "other operation" if step.name == "message":
            return step._replace(ranks=step.ranks[::-1])  # sends where it should receive, or the other way round
        case "other operation":
            return step._replace(name=other(COLLECTIVES, step.name))
        case "other shape":
            return step._replace(size=step.size + 1)
        case "other dtype":
            return step._replace(dtype=other(DTYPES, step.dtype))
        case "other root":
            return step._replace(root=other(step.ranks, step.root))
        case "other reduction":
            return step._replace(reduction=other(REDUCTIONS, step.reduction))
        case "wrong peer":
            peer = other(world, *step.ranks)
            return step._replace(ranks=tuple(each if each == rank else peer for each in step.ranks))
        case "wrong tag":
            return step._replace(tag=step.tag + 100)


def schedule(random):
    return {"schedule": "shuffle", "seed": random.randrange(2**31)} if random.random() < 0.5 else {}


# What must come of them.


def rank_threads():
    return [thread.name for thread in threading.enumerate() if thread.name.startswith("rank ")]


@CASES
def test_right_programs_give_the_same_on_every_schedule(cases):
    for case in cases:
        random = Random(case)
        program = right_program(random)
        results = tinydist.launch(run, program.world, program).results
        for seed in random.sample(range(2**31), 3):
            shuffled = tinydist.launch(run, program.world, program, schedule="shuffle", seed=seed).results
            assert shuffled == results, f"case {case}, seed {seed}"
    assert rank_threads() == []


@CASES
@pytest.mark.parametrize("kind", FAULTS)
def test_a_mistake_is_reported_and_the_rank_that_made_it_is_named(kind, cases):
    for case in cases:
        random = Random(f"{kind} {case}")
        program, fault = faulty_program(random, kind)
        with pytest.raises((DeadlockError, MismatchError, Planted)) as caught:
            tinydist.launch(run, program.world, program, fault, **schedule(random))
        assert names(caught.value, fault.rank), f"case {case}: rank {fault.rank} is not to blame in: {caught.value}"
        assert (kind == "raises") == (caught.type is Planted)
        assert rank_threads() == []


@pytest.mark.parametrize("kind", STUCK | LEAVES)
def test_a_rank_that_does_not_go_on_is_named_and_leaves_nothing_behind(kind):
    for case in range(3):
        random = Random(f"{kind} {case}")
        program = right_program(random)
        results = tinydist.launch(run, program.world, program).results
        fault = a_fault(random, kind, program)
        limit = {"timeout": 0.5} if kind in STUCK else {}  # a busy machine holds other ranks up, too
        with pytest.raises(StuckError if kind in STUCK else RuntimeError, match=f"^rank {fault.rank} "):
            tinydist.launch(run, program.world, program, fault, **limit, **schedule(random))
        assert rank_threads() == []
        assert tinydist.launch(run, program.world, program).results == results


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("kind", HARMLESS)
def test_what_is_no_failure_changes_nothing(kind):
    for case in range(10):
        random = Random(f"{kind} {case}")
        program = right_program(random)
        results = tinydist.launch(run, program.world, program).results
        fault = a_fault(random, kind, program)
        assert tinydist.launch(run, program.world, program, fault, **schedule(random)).results == results
        assert rank_threads() == []


def names(error, rank):
    """Does the report put the blame on ``rank``?"""
    if isinstance(error, DeadlockError):
        return rank in missing(str(error))
    if isinstance(error, MismatchError):
        return str(rank) in re.findall(r"^  rank (\d+) call", str(error), re.MULTILINE)
    return error.__notes__ == [f"on rank {rank} of {error.args[0]}"]


def missing(report):
    """The ranks for which somebody waits; the one that waits, if only one does, for the others have left it."""
    lines = report.splitlines()
    ranks = set()
    for line in lines:
        if found := re.search(r"(?:missing: ranks?|to rank|from rank) ([\d, -]+)", line):
            ranks |= in_numbers(found[1])
    waiting = [found[1] for line in lines if (found := re.match(r"  ranks? ([\d, -]+) waits? in", line))]
    if re.search(r"no rank can run: 1 of", report):
        ranks |= in_numbers(waiting[0])
    return ranks


def in_numbers(words):
    """{0, 1, 2, 5} from '0-2, 5'."""
    spans = [part.split("-") for part in words.strip(", ").split(", ")]
    return {rank for span in spans for rank in range(int(span[0]), int(span[-1]) + 1)}
