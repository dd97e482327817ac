"""What is right is accepted, what breaks a rule is rejected with the rule and the place."""

import random
import re
from collections import Counter, defaultdict
from dataclasses import replace
from itertools import product

import pytest
from pipeline_parallel.torchs_own import NAMES, torchs

from tinydist.pipeline_parallel import (
    SCHEDULES,
    Action,
    Overlap,
    Schedule,
    ScheduleError,
    make_schedule,
    parse,
    verify,
    with_messages,
)

RULES = ("place", "once", "order", "messages", "deadlock", "memory")
SIZES = [(P, M) for P, M in product((1, 2, 3, 4, 8), (1, 2, 3, 4, 6, 8, 16)) if not M % max(1, M // P)]


def schedule_of(*rows, stages=2, microbatches=2):
    """From text: a row for each rank."""
    return Schedule("mine", tuple(tuple(map(parse, row.split())) for row in rows), stages, microbatches)


# What is right.


@pytest.mark.parametrize("name", SCHEDULES)
def test_ours_are_right(name):
    for ranks, microbatches in SIZES:
        schedule = make_schedule(name, ranks, microbatches)
        assert verify(schedule) is schedule and verify(with_messages(schedule))


@pytest.mark.parametrize("chunks", [1, 3, 4])
@pytest.mark.parametrize("name", ["interleaved 1F1B", "looped BFS"])
def test_any_number_of_stages_in_a_loop(name, chunks):
    for ranks, microbatches in SIZES:
        assert verify(with_messages(make_schedule(name, ranks, microbatches, chunks))).stages == ranks * chunks


@pytest.mark.parametrize("messages", [False, True], ids=["passes", "with messages"])
@pytest.mark.parametrize("name", NAMES)
def test_torchs_are_right(name, messages):
    for ranks, microbatches in product((2, 3, 4), (2, 4, 8, 12)):
        enough = microbatches >= {"1F1B": ranks, "DualPipeV": 2 * ranks}.get(name, 1)  # below, torch makes no schedule
        legal = enough and not microbatches % max(1, microbatches // ranks)
        if legal and not (messages and name in ("GPipe", "1F1B")):  # of these torch has no version with messages
            verify(torchs(name, ranks, microbatches, with_messages=messages))


# What is wrong.


def runs(schedule, home):
    """A slow check that knows no rules: run it with words for tensors, and look whether all work has been done."""
    at, sends, receives = [0] * schedule.ranks, defaultdict(list), defaultdict(list)
    has, made = defaultdict(set), Counter()  # rank -> results that are there
    last = schedule.stages - 1

    def act(rank, part):
        stage, kind, microbatch = part
        ok = 0 <= stage <= last and home[stage] == rank and microbatch < schedule.microbatches
        if not ok:
            return False
        forward, backward = ("F", stage, microbatch), ("B", stage, microbatch)
        if kind.startswith("SEND"):
            result, to = (forward, stage + 1) if kind == "SEND_F" else (backward, stage - 1)
            if result not in has[rank] or to not in home or home[to] == rank:
                return False
            sends[rank, home[to]].append(result)
        elif kind.startswith("RECV"):
            source, result = (stage - 1, "F") if kind == "RECV_F" else (stage + 1, "B")
            if source not in home or home[source] == rank or (forward in has[rank] and kind == "RECV_F"):
                return False
            receives[home[source], rank].append((result, source, microbatch))
            if kind == "RECV_B" and backward in has[rank]:
                return False
        else:
            need = {"F": ("F", stage - 1, microbatch), "W": ("I", stage, microbatch)}.get(
                kind, ("B", stage + 1, microbatch)
            )
            own = kind == "F" or kind == "W" or forward in has[rank]
            if (
                not own
                or (kind != "W" and not ready(rank, need, kind, stage))
                or (kind == "W" and need not in has[rank])
            ):
                return None
            has[rank] |= {("B" if kind == "I" else kind, stage, microbatch), (kind, stage, microbatch)}
            made[kind, stage, microbatch] += 1
        return True

    def ready(rank, need, kind, stage):
        if (kind == "F" and stage == 0) or (kind in "BI" and stage == last):
            return True
        source = home[need[1]]
        if source == rank:
            return need in has[rank]
        if not schedule.has_messages:
            return need in has[source]
        expected, arrived = receives[source, rank], sends[source, rank]
        return need in [one for one, other in zip(expected, arrived) if one == other]

    going = True
    while going:
        going = False
        for rank, program in enumerate(schedule.programs):
            while at[rank] < len(program):
                each = program[at[rank]]
                if isinstance(each, Overlap):  # both must be able to begin before either has been done
                    saved = {r: set(s) for r, s in has.items()}, made.copy()
                    first = act(rank, each.forward)
                    after = has[rank]
                    has[rank] = set(saved[0].get(rank, set()))
                    second = act(rank, each.backward)
                    outcome = first and second
                    has[rank] |= after
                    if not outcome:
                        has[rank] = set(saved[0].get(rank, set()))
                        made.clear()
                        made.update(saved[1])
                else:
                    outcome = act(rank, each)
                if outcome is False:
                    return False
                if outcome is None:
                    break
                at[rank], going = at[rank] + 1, True
    done = all(step == len(program) for step, program in zip(at, schedule.programs))
    whole = all(
        (made["F", s, m], made["B", s, m], made["I", s, m], made["W", s, m]) in ((1, 1, 0, 0), (1, 0, 1, 1))
        for s in range(last + 1)
        for m in range(schedule.microbatches)
    )
    return done and whole and sends == receives


def mutant(draw, schedule):
    """One random change."""
    programs = [list(program) for program in schedule.programs]
    rank = draw.randrange(len(programs))
    program = programs[rank]
    step, other = draw.randrange(len(program)), draw.randrange(len(program))
    action = program[step].parts[0]
    how = draw.choice(["drop", "repeat", "swap", "swap", "swap", "number", "kind", "stage", "move"])
    if how == "drop":
        del program[step]
    elif how == "repeat":
        program.insert(other, program[step])
    elif how == "swap":
        other = draw.choice([other, max(0, step - 1)])
        program[step], program[other] = program[other], program[step]
    elif how == "number":
        program[step] = action._replace(microbatch=draw.randrange(schedule.microbatches + 1))
    elif how == "kind":
        program[step] = action._replace(kind=draw.choice(["F", "B", "I", "W", "SEND_F", "RECV_F", "SEND_B", "RECV_B"]))
    elif how == "stage":
        program[step] = action._replace(stage=draw.randrange(schedule.stages + 1))
    else:
        programs[draw.randrange(len(programs))].insert(other, program.pop(step))
    return replace(schedule, programs=tuple(map(tuple, programs)))


@pytest.mark.parametrize("count, of_each, right", [(100, 1, 4), pytest.param(500, 6, 21, marks=pytest.mark.exhaustive)])
def test_mutants_that_break_a_rule(count, of_each, right):
    """And those that break none are accepted: the verifier and the slow check agree on every one."""
    draw, broken, accepted = random.Random(0), Counter(), 0
    while sum(broken.values()) < count:
        ranks, microbatches = draw.choice([(2, 2), (2, 4), (3, 3), (4, 4)])
        schedule = make_schedule(draw.choice(list(SCHEDULES)), ranks, microbatches)
        schedule = draw.choice([schedule, with_messages(schedule)])
        changed = mutant(draw, schedule)
        if changed.has_messages and not schedule.has_messages:
            continue  # a message alone makes it a schedule with messages, of which all others are missing
        if runs(changed, schedule.rank_of):
            assert verify(changed)
            accepted += 1
            continue
        with pytest.raises(ScheduleError) as caught:
            verify(changed)
        error = caught.value
        assert error.rule in RULES and f"(rule: {error.rule})" in str(error)
        assert 0 <= error.rank < ranks and f"rank {error.rank}" in str(error)
        if error.step is not None:
            cell = changed.programs[error.rank][error.step]
            assert f", step {error.step}: " in str(error) and f"> {cell} <" in str(error)
        broken[error.rule] += 1
    assert min(broken[rule] for rule in RULES if rule != "memory") >= of_each and accepted >= right


@pytest.mark.parametrize(
    "rows, rule, rank, step, text",
    [
        (["0F0 0F1 0B0 0B1", "1F0 1B0 1F1 0B1"], "place", 1, 3, "stage 0 is on rank 0, and cannot also be here"),
        (["0F0 0F2 0B0 0B1", "1F0 1B0 1F1 1B1"], "place", 0, 1, "there are stages 0 to 1 and microbatches 0 to 1"),
        (["0F0 0F1 0B0 0B1", "1F0 1B0 1F1 1B0"], "once", 1, 3, "1B0 was already executed at step 1"),
        (["0F0 0F1 0B0 0B1", "1F0 1B0 1F1"], "once", 1, None, "1B1 is missing: neither it nor 1I1 is there"),
        (["0F0 0F1 0B0 0I1", "1F0 1B0 1F1 1B1"], "once", 0, 3, "0W1 is missing: 0I1 leaves the weight gradients"),
        (["0F0 0F1 0B0 0B1 0W0", "1F0 1B0 1F1 1B1"], "once", 0, 4, "0W0 does again what 0B0 does at step 2"),
        (["0F0 0B1 0B0 0F1", "1F0 1B0 1F1 1B1"], "order", 0, 1, "0B1 needs 0F1, which runs only at step 3"),
        (["0F0 0W0 0I0 0F1 0B1", "1F0 1B0 1F1 1B1"], "order", 0, 1, "0W0 needs 0I0, which runs only at step 2"),
        (["0F0 0F1 0B0 0B1", "1F0 1F1 1B1 (1F0;1B0)OVERLAP_F_B"], "once", 1, 3, "1F0 was already executed at step 0"),
        (["0F0 0F1 0B0 0B1", "1F0 1B0 (1F1;1B1)OVERLAP_F_B"], "order", 1, 2, "1B1 cannot overlap 1F1, which it needs"),
        (
            ["0F0 0B0 0F1 0B1", "1F0 1F1 1B0 1B1"],
            "deadlock", 0, 1,
            "rank 0 waits in 0B0 for 1B0 of rank 1; rank 1 waits in 1F1 for 0F1 of rank 0",
        ),
        (
            ["0F0 0SEND_F0 0F1 0SEND_F1 0RECV_B0 0B0 0RECV_B1 0B1",
             "1RECV_F1 1RECV_F0 1F0 1B0 1SEND_B0 1F1 1B1 1SEND_B1"],
            "messages", 1, 0, "1RECV_F1 is received where rank 0 sends what is for 1RECV_F0: out of order",
        ),
        (
            ["0F0 0SEND_F0 0F1 0SEND_F1 0RECV_B0 0B0 0B1", "1RECV_F0 1F0 1B0 1SEND_B0 1RECV_F1 1F1 1B1 1SEND_B1"],
            "messages", 0, None, "0RECV_B1 is missing",
        ),
        (
            ["0SEND_F0 0F0 0F1 0SEND_F1 0RECV_B0 0B0 0RECV_B1 0B1",
             "1RECV_F0 1F0 1B0 1SEND_B0 1RECV_F1 1F1 1B1 1SEND_B1"],
            "order", 0, 0, "0SEND_F0 comes before 0F0, at step 1, which makes what it sends",
        ),
    ],
)  # fmt: skip
def test_each_rule(rows, rule, rank, step, text):
    with pytest.raises(ScheduleError, match=re.escape(text)) as caught:
        verify(schedule_of(*rows))
    assert (caught.value.rule, caught.value.rank, caught.value.step) == (rule, rank, step)


def test_the_place_is_shown_in_the_table():
    with pytest.raises(ScheduleError) as caught:
        verify(schedule_of("0F0 0B1 0B0 0F1", "1F0 1B0 1F1 1B1"))
    assert str(caught.value) == (
        "mine, rank 0, step 1: 0B1 needs 0F1, which runs only at step 3 (rule: order)\n"
        "steps from 0:\n"
        "rank 0   0F0     > 0B1 < 0B0     0F1\n"
        "rank 1   1F0     1B0     1F1     1B1"
    )


def test_memory():
    schedule = make_schedule("GPipe", 2, 8)
    assert verify(make_schedule("1F1B", 2, 8), most_activations=2)
    with pytest.raises(ScheduleError, match=r"holds 3 activations in 0F2, of at most 2 \(rule: memory\)") as caught:
        verify(schedule, most_activations=2)
    assert (caught.value.rule, caught.value.rank, caught.value.step) == ("memory", 0, 2)


def test_actions_that_are_none():
    with pytest.raises(ScheduleError, match=r"\(1B0;1F1\)OVERLAP_F_B is not a forward with a backward"):
        verify(schedule_of("0F0 0F1 0B0 0B1", "1F0 (1B0;1F1)OVERLAP_F_B 1B1"))
    with pytest.raises(ScheduleError, match="0X0 is not a known action"):
        verify(Schedule("mine", ((Action(0, "X", 0),),), 1, 1))
    with pytest.raises(ScheduleError, match="rank 1: it has no stage"):
        verify(Schedule("mine", (tuple(map(parse, ["0F0", "0B0"])), ()), 1, 1))
