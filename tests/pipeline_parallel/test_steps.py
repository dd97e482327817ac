"""What ends a training step: in the schedule, in its time, and with real weights."""

import csv
from dataclasses import replace
from math import inf
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
import torch.nn.functional as F
from pipeline_parallel.tiny_pipeline import ROWS, WIDTH, batch, blocks
from tiny_training import assert_every_rank_has
from torch import nn

import tinydist
from tinydist.hardware import Cluster, Device, Link
from tinydist.pipeline_parallel import (
    SCHEDULES,
    Costs,
    ScheduleError,
    Worker,
    analyze,
    make_schedule,
    parse,
    verify,
    with_messages,
    with_steps,
)
from tinydist.pipeline_parallel.schedule import Schedule

TABLE5 = list(csv.DictReader(Path(__file__).with_name("zero_bubble_table5_6.csv").open()))
each_schedule = pytest.mark.parametrize("name", SCHEDULES)
CHECKED = (None, "before", "after")


def test_one_f_one_b_by_hand():
    schedule = make_schedule("1F1B", 2, 2)
    assert str(with_steps(schedule)).splitlines()[1].split()[2:] == (
        ["1F0", "1B0", "1F1", "1B1", "1REDUCE_GRAD0", "1WAIT_REDUCE_GRAD0", "1STEP0"]
    )
    before, after = (str(with_steps(schedule, 2, how)).splitlines()[0].split() for how in ("before", "after"))
    assert before[6:13] == ["0REDUCE_GRAD0", "0WAIT_REDUCE_GRAD0", "0NORM0", "0CHECK0", "0STEP0", "0F2", "0F3"]
    assert after[6:13] == ["0REDUCE_GRAD0", "0WAIT_REDUCE_GRAD0", "0NORM0", "0STEP0", "0F2", "0F3", "0CHECK0"]
    assert after[-4:] == ["0WAIT_REDUCE_GRAD1", "0NORM1", "0STEP1", "0CHECK1"]


@each_schedule
@pytest.mark.parametrize("checked", CHECKED)
def test_they_are_right_with_messages_and_without(name, checked):
    for P, M, steps in [(1, 2, 2), (2, 4, 1), (3, 6, 3), (4, 3, 2)]:
        schedule = verify(with_steps(make_schedule(name, P, M), steps, checked))
        whole = verify(with_messages(schedule))
        assert schedule.microbatches == M * steps and schedule.rank_of == make_schedule(name, P, M).rank_of
        costs = Costs(2, 3, 1, reduce=1.5, step=0.25)
        assert analyze(whole, costs).makespan == pytest.approx(analyze(schedule, costs).makespan)


def mended(schedule, rank, changes):
    """With actions of a rank replaced, by several or none."""
    changes = {parse(old): tuple(map(parse, new.split())) for old, new in changes.items()}
    programs = list(schedule.programs)
    programs[rank] = tuple(new for each in programs[rank] for new in changes.get(each, (each,)))
    return replace(schedule, programs=tuple(programs))


@pytest.mark.parametrize(
    "rule, text, changes",
    [
        ("once", "0STEP0 is missing", {"0STEP0": ""}),
        ("once", "0REDUCE_GRAD1 is missing", {"0REDUCE_GRAD1": ""}),
        ("once", "0WAIT_REDUCE_GRAD1 is missing", {"0WAIT_REDUCE_GRAD1": ""}),
        ("once", "0CHECK1 is missing", {"0CHECK1": ""}),
        ("once", "0STEP1 was already executed", {"0STEP1": "0STEP1 0STEP1"}),
        ("place", "0STEP2, but there are stages 0 to 1 and steps 0 to 1", {"0STEP1": "0STEP2"}),
        ("place", "1REDUCE_GRAD0, .*stage 1 is on rank 0|cannot also be here", {"0REDUCE_GRAD0": "1REDUCE_GRAD0"}),
        ("order", "0F2 needs 0STEP0, which runs only at step 8", {"0F2": "0STEP0", "0STEP0": "0F2"}),
        ("order", "0REDUCE_GRAD0 needs 0B1", {"0B1": "0REDUCE_GRAD0", "0REDUCE_GRAD0": "0B1"}),
        (
            "order",
            "0WAIT_REDUCE_GRAD0 needs 0REDUCE",
            {"0REDUCE_GRAD0": "0WAIT_REDUCE_GRAD0", "0WAIT_REDUCE_GRAD0": "0REDUCE_GRAD0"},
        ),
        ("order", "0STEP0 needs 0NORM0", {"0NORM0": "0STEP0", "0STEP0": "0NORM0"}),
        ("order", "0B2 needs 0CHECK0", {"0B2": "0CHECK0", "0CHECK0": "0B2"}),
    ],
)
def test_what_is_wrong(rule, text, changes):
    schedule = verify(with_steps(make_schedule("1F1B", 2, 2), 2, "after"))
    with pytest.raises(ScheduleError, match=text) as raised:
        verify(mended(schedule, 0, changes))
    assert raised.value.rule == rule


def test_the_norm_needs_ranks_in_the_order_of_stages():
    rows = ["0F0 1F0 1B0 0B0", "2F0 2B0"]
    programs = tuple(tuple(map(parse, row.split())) for row in rows)
    schedule = Schedule("mine", programs, 3, 1)
    verify(with_steps(schedule))
    with pytest.raises(ScheduleError, match="the norm passes down stages 0 to 1, which must be of all ranks"):
        verify(with_steps(schedule, checked="before"))


def test_impossible():
    schedule = make_schedule("1F1B", 2, 2)
    for wrong in (with_messages(schedule), with_steps(schedule)):
        with pytest.raises(ValueError, match="must have one step, no send or recv, and no optimizer step"):
            with_steps(wrong)


# Time.


@pytest.mark.parametrize("P, M", [(2, 4), (4, 8), (4, 15)])
@pytest.mark.parametrize("F, I, W", [(1, 1, 1), (4, 3.5, 3), (18.5, 18.1, 9.3)])
def test_only_validated_afterwards_a_zero_bubble_is_one(P, M, F, I, W):  # noqa: E741
    """A further step takes the longest span of a rank; or from the first begin to the last end, if all wait."""
    for name in ("1F1B", "ZB-H1", "ZB-H2"):
        schedule, costs = make_schedule(name, P, M), Costs(F, I, W)
        alone = analyze(schedule, costs)
        spans = [idle + busy for idle, busy in zip(alone.idle_in_span, alone.busy)]
        for checked, each in ((None, max(spans)), ("before", alone.makespan), ("after", max(spans))):
            two, three = (analyze(with_steps(schedule, steps, checked), costs).makespan for steps in (2, 3))
            assert three - two == pytest.approx(each)


def bubbles_of_steps(row, checked):
    """Of 1F1B, ZB-H1, ZB-H2 in step after step, as they are printed."""
    P, M = int(row["p"]), int(row["m"])
    costs = Costs(float(row["TF"]), float(row["TB"]), float(row["TW"]), float(row["Tcomm"]))
    for name in ("1F1B", "ZB-H1", "ZB-H2"):
        schedule = make_schedule(name, P, M)
        two, three = (analyze(with_steps(schedule, steps, checked), costs).makespan for steps in (2, 3))
        yield round(1 - M * (costs.forward + costs.backward_input + costs.backward_weight) / (three - two), 4)


def assert_as_in_the_paper(row):
    published = [float(row[f"paper_{name}"]) for name in ("1F1B", "ZB_H1", "ZB_H2")]
    assert list(bubbles_of_steps(row, "after")) == published
    assert all(one > other for one, other in zip(bubbles_of_steps(row, "before"), published))


def test_step_after_step_validated_afterwards_the_bubbles_are_the_papers():
    """Qi et al., Zero Bubble Pipeline Parallelism, 2024, table 5: to all digits, messages included."""
    assert_as_in_the_paper(TABLE5[3])


@pytest.mark.exhaustive
@pytest.mark.parametrize("row", TABLE5, ids=lambda row: f"{row['model']}-{row['m']}")
def test_step_after_step_the_bubbles_are_the_papers_in_all_rows(row):
    assert_as_in_the_paper(row)


def test_reductions_go_on_beside_backward():
    """Of a rank's stages the last is done first: only what is left of the last reduction is waited for."""
    schedule = make_schedule("looped BFS", 2, 2, 2)
    found = analyze(with_steps(schedule), Costs(reduce=3, step=0.5))
    last, first = found.reductions[parse("2REDUCE_GRAD0")], found.reductions[parse("0REDUCE_GRAD0")]
    end = analyze(schedule).makespan
    assert first == (end, end + 3) and last == (end - 4, end - 1)
    assert found.makespan == end + 3 + 2 * 0.5
    one_after_another = analyze(with_steps(schedule), Costs(reduce=5))
    assert one_after_another.reductions[parse("0REDUCE_GRAD0")] == (end + 1, end + 6)


# Executed: the same virtual time.

WIDE = 32
PASS = 2 * ROWS * WIDE * WIDE / 1e9
PRODUCTS = Device("products alone", {"float32": 1e9}, inf, inf)


class Products(torch.optim.SGD):
    """A step that takes as long as one product."""

    def step(self):
        super().step()
        torch.ones(ROWS, WIDE) @ torch.ones(WIDE, WIDE)


def groups(P, replicas):
    """Of a rank: its pipeline, the same with another group for messages up, and the ranks with the same stages."""
    pipelines = [[dist.new_group(range(P * each, P * each + P)) for each in range(replicas)] for _ in range(2)]
    same = [dist.new_group(range(rank, P * replicas, P)) for rank in range(P)]
    rank = dist.get_rank()
    return {
        "group": pipelines[0][rank // P],
        "grad_group": pipelines[1][rank // P],
        "replicas": same[rank % P],
    }


def execute(schedule, link, replicas):
    def program():
        joined = groups(schedule.ranks, replicas)
        rows = ROWS * schedule.microbatches
        mine = {
            stage: nn.Linear(WIDE, WIDE, bias=False) for stage in schedule.stages_of(dist.get_rank() % schedule.ranks)
        }
        optimizer = Products([parameter for each in mine.values() for parameter in each.parameters()], lr=0.1)
        between = torch.empty(ROWS, WIDE, device="meta")
        worker = Worker(
            schedule, mine, between, lambda out, target: (out * target).mean(), optimizer=optimizer, **joined
        )
        worker.step(*[torch.ones(1, WIDE).expand(rows, WIDE) for _ in range(2)])

    wires = Link("wires", link, inf, "mesh")
    return tinydist.launch(
        program, schedule.ranks * replicas, cluster=Cluster(PRODUCTS, schedule.ranks * replicas, wires)
    )


@pytest.mark.parametrize(
    "name, checked",
    [("1F1B", None), ("looped BFS", "before"), ("ZB-H2", "before"), ("ZB-H2", "after"), ("ZB-V", "after")],
)
def test_executed_as_analyzed(name, checked):
    """A replica of each rank; an all-reduce of two takes two messages' time."""
    schedule, message = with_steps(make_schedule(name, 3, 6), 2, checked), 0.5 * PASS
    ranks = schedule.stages // 3
    halves = [0] + [PASS] * (schedule.stages - 1)  # the input of stage 0 needs no gradient
    costs = Costs(PASS, halves, PASS, message, reduce=2 * message, step=PASS / ranks)
    assert execute(schedule, message, 2).seconds == pytest.approx(
        analyze(with_messages(schedule), costs).makespan, rel=1e-9
    )


# Real weights.

STEPS, MICROBATCHES = 3, 4


def launched(schedule, replicas=1, max_norm=None, poisoned=None, dropout=0.0):
    """Stage -> its weights after STEPS, and the losses. ``poisoned``: a stage whose second step has no finite norm."""

    def program():
        joined, everything = groups(schedule.ranks, replicas), blocks(schedule.stages)
        pipeline, rank = divmod(dist.get_rank(), schedule.ranks)
        mine = {stage: nn.Sequential(everything[stage], nn.Dropout(dropout)) for stage in schedule.stages_of(rank)}
        if poisoned in mine:
            poison(mine[poisoned])
        optimizer = torch.optim.AdamW([p for block in mine.values() for p in block.parameters()], lr=0.1)
        between = torch.empty(ROWS, WIDTH, device="meta")
        worker = Worker(schedule, mine, between, F.mse_loss, optimizer=optimizer, max_norm=max_norm, **joined)
        rows = [
            each.unflatten(0, (STEPS, replicas, -1))[:, pipeline] for each in batch(replicas * schedule.microbatches)
        ]
        loss = worker.step(*[each.flatten(0, 1) for each in rows])
        return {stage: [p.detach() for p in block.parameters()] for stage, block in mine.items()}, loss

    results = tinydist.launch(program, schedule.ranks * replicas, observe=False).results
    together = {stage: each for mine, _ in results[: schedule.ranks] for stage, each in mine.items()}
    return together, torch.stack([loss for _, loss in results if loss is not None]).mean(0)


def poison(block):
    """The gradients of a weight are infinite in the last microbatch of the second step."""
    seen = []

    def spoilt(gradient):
        seen.append(gradient)
        return gradient * (inf if len(seen) == 2 * MICROBATCHES else 1)

    next(block.parameters()).register_hook(spoilt)


def in_one_process(stages, replicas, max_norm):
    model = nn.Sequential(*blocks(stages))
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
    losses = []
    for inputs, targets in zip(*[each.chunk(STEPS) for each in batch(replicas * STEPS * MICROBATCHES)]):
        optimizer.zero_grad()
        losses.append(F.mse_loss(model(inputs), targets))
        losses[-1].backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), max_norm)
        optimizer.step()
    return {stage: [p.detach() for p in block.parameters()] for stage, block in enumerate(model)}, torch.stack(losses)


@pytest.mark.parametrize("checked", ["before", "after"])
@pytest.mark.parametrize("name, replicas", [("1F1B", 1), ("interleaved 1F1B", 2), ("ZB-H2", 2), ("ZB-V", 1)])
def test_equals_one_process(name, replicas, checked):
    schedule = with_steps(make_schedule(name, 2, MICROBATCHES), STEPS, checked)
    expected = in_one_process(schedule.stages, replicas, max_norm=0.3)
    assert_every_rank_has(expected, [launched(schedule, replicas, max_norm=0.3)])


@pytest.mark.parametrize("name", ["interleaved 1F1B", "ZB-H2", "ZB-V"])
@pytest.mark.parametrize("harm", [{}, {"max_norm": 0.3}, {"poisoned": 0}, {"poisoned": 2}], ids=str)
def test_validated_afterwards_the_weights_are_the_same_to_the_bit(name, harm):
    schedule = make_schedule(name, 3, MICROBATCHES + 2 * (name == "interleaved 1F1B"))
    before, after = (
        launched(with_steps(schedule, STEPS, checked), dropout=0.5, **harm) for checked in ("before", "after")
    )
    for stage, weights in before[0].items():
        assert all(torch.equal(one, other) for one, other in zip(weights, after[0][stage], strict=True))
    assert torch.equal(before[1], after[1])
