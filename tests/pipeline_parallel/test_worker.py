"""Every schedule, executed: the loss and gradients of one process."""

from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from itertools import pairwise

import pytest
import torch
import torch.distributed as dist
import torch.nn.functional as F
from pipeline_parallel.tiny_pipeline import (
    ROWS,
    WIDTH,
    assert_equals_one_process,
    batch,
    blocks,
    gradients,
    in_one_process,
    step,
)
from sampled import sampled
from tiny_training import assert_every_rank_has

import tinydist
from tinydist.pipeline_parallel import SCHEDULES, ScheduleError, Worker, make_schedule, verify

each_schedule = pytest.mark.parametrize("name", SCHEDULES)


@each_schedule
@pytest.mark.parametrize(
    "ranks, microbatches",
    sampled([(1, 3), (3, 2), (4, 9)], [(1, 3), (2, 1), (2, 4), (3, 2), (3, 6), (4, 3), (4, 9), (8, 5), (8, 16)]),
)
def test_equals_one_process(name, ranks, microbatches):
    if name == "interleaved 1F1B" and microbatches % max(1, microbatches // ranks):
        microbatches += 1
    assert_equals_one_process(verify(make_schedule(name, ranks, microbatches)))


@pytest.mark.parametrize("name", ["1F1B", "ZB-V"])
def test_equals_one_process_on_processes(name):
    assert_equals_one_process(make_schedule(name, 2, 4), backend="gloo")


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("name", ["interleaved 1F1B", "ZB-V", "DualPipeV"])
def test_in_any_legal_order(name, seed):
    assert_equals_one_process(make_schedule(name, 4, 8), schedule_order="shuffle", seed=seed)


def test_messages_to_lower_ranks_may_have_a_group_of_their_own():
    schedule = make_schedule("ZB-V", 3, 6)
    results = tinydist.launch(lambda: step(schedule, grad_group=dist.new_group([0, 1, 2])), 3).results
    alone = tinydist.launch(lambda: step(schedule), 3).results
    assert_every_rank_has([grads for grads, _ in alone], [[grads for grads, _ in results]])


def test_in_a_group():
    """Two pipelines of two ranks, side by side: rank 0 of each group has the first stage."""
    schedule = make_schedule("1F1B", 2, 4)

    def program():
        groups = [dist.new_group([0, 2]), dist.new_group([3, 1])]
        return step(schedule, group=groups[dist.get_rank() % 2])

    expected, loss = in_one_process(2, 4)
    results = tinydist.launch(program, 4).results
    for ranks in ([0, 2], [1, 3]):
        together = {stage: grads for rank in ranks for stage, grads in results[rank][0].items()}
        assert_every_rank_has((expected, loss), [(together, results[ranks[1]][1])])


def test_gradients_add_up_over_steps():
    schedule = make_schedule("ZB-H1", 2, 3)

    def program():
        rank = dist.get_rank()
        mine = {rank: blocks(2)[rank]}
        worker = Worker(schedule, mine, torch.empty(ROWS, WIDTH, device="meta"), F.mse_loss)
        for _ in range(2):
            worker.step(*batch(3))
        return gradients(mine)

    expected, _ = in_one_process(2, 3)
    for rank, found in enumerate(tinydist.launch(program, 2).results):
        assert_every_rank_has({rank: [2 * grad for grad in expected[rank]]}, [found])


def test_stages_of_different_widths():
    widths = [6, 3, 9, 6]
    schedule = make_schedule("1F1B", 3, 4)

    def layers():
        torch.manual_seed(1)
        return [torch.nn.Linear(a, b) for a, b in pairwise(widths)]

    def program():
        rank = dist.get_rank()
        mine = {rank: layers()[rank]}
        between = {stage: torch.empty(ROWS, widths[stage], device="meta") for stage in (1, 2)}
        Worker(schedule, mine, between, F.mse_loss).step(*batch(4))
        return gradients(mine)

    model = torch.nn.Sequential(*layers())
    inputs, targets = batch(4)
    F.mse_loss(model(inputs), targets).backward()
    for rank, found in enumerate(tinydist.launch(program, 3).results):
        assert_every_rank_has(gradients({rank: model[rank]}), [found])


@pytest.mark.parametrize("recompute", [False, True])
@pytest.mark.parametrize("name", ["1F1B", "ZB-H1"])
def test_a_first_stage_without_gradients(name, recompute):
    """As in fine-tuning: it is sent a gradient, and has no use for it."""
    schedule = make_schedule(name, 2, 4)

    def program():
        rank = dist.get_rank()
        mine = {rank: blocks(2)[rank].requires_grad_(rank == 1)}
        between = torch.empty(ROWS, WIDTH, device="meta")
        Worker(schedule, mine, between, F.mse_loss, recompute=recompute).step(*batch(4))
        return gradients(mine)

    frozen, other = tinydist.launch(program, 2).results
    assert frozen[0] == [None] * 4
    assert_every_rank_has({1: in_one_process(2, 4)[0][1]}, [other])


# What cannot be done.


def worker(schedule, stages=None, loss=F.mse_loss):
    mine = {stage: torch.nn.Identity() for stage in stages or schedule.stages_of(dist.get_rank())}
    return Worker(schedule, mine, torch.empty(ROWS, WIDTH), loss)


@pytest.mark.parametrize(
    "wrong, message",
    [
        (
            lambda: worker(make_schedule("1F1B", 3, 4)),
            "1F1B: 3 ranks, .* needs a group of that size, but the group has 2",
        ),
        (lambda: worker(make_schedule("1F1B", 2, 4), [1]), r"Worker: rank 0 has the stages \[0\], but was given \[1\]"),
        (lambda: worker(make_schedule("1F1B", 2, 4), loss=None), "rank 1 has the last stage, 1, and needs a loss"),
        (
            lambda: worker(make_schedule("1F1B", 2, 4)).step(torch.ones(6, WIDTH), torch.ones(8, WIDTH)),
            r"Worker: inputs: rows must be divisible by microbatches \(4\), got 6 rows \(rank 0\)",
        ),
        (
            lambda: worker(make_schedule("1F1B", 2, 4)).step(torch.ones(8, WIDTH)),
            r"Worker: targets: rows must be divisible by microbatches \(4\), got None \(rank 1\)",
        ),
    ],
)
def test_impossible(wrong, message):
    with pytest.raises(ValueError, match=message):
        tinydist.launch(wrong, 2)


@pytest.mark.parametrize("name", ["1F1B", "ZB-H1"])
def test_a_stage_that_forgets_its_input(name):
    class Forgets(torch.nn.Linear):
        def forward(self, x):
            return super().forward(torch.ones_like(x))

    def program():
        rank = dist.get_rank()
        worker = Worker(
            make_schedule(name, 2, 2),
            {rank: Forgets(WIDTH, WIDTH)},
            torch.empty(ROWS, WIDTH, device="meta"),
            F.mse_loss,
        )
        worker.step(*batch(2))

    with pytest.raises(ValueError, match=r"output of stage 1 does not depend on its input, .* for stage 0 \(rank 1\)"):
        tinydist.launch(program, 2)


def test_another_shape_than_announced():
    def program():
        rank = dist.get_rank()
        Worker(make_schedule("1F1B", 2, 2), {rank: blocks(2)[rank]}, torch.empty(ROWS, 5), F.mse_loss).step(*batch(2))

    message = r"of stage 1 is torch.float32 \[2, 5\], but the output of stage 0 is torch.float32 \[2, 6\] \(rank 0\)"
    with pytest.raises(ValueError, match=message):
        tinydist.launch(program, 2)


def test_an_invalid_schedule_is_not_begun():
    schedule = make_schedule("1F1B", 2, 4)
    crossed = replace(schedule, programs=(schedule.programs[0], schedule.programs[1][::-1]))
    with pytest.raises(ScheduleError, match="rule: order"):
        tinydist.launch(lambda: worker(crossed), 2)


@pytest.mark.parametrize("name, ranks, microbatches", [("GPipe", 2, 1), ("interleaved 1F1B", 4, 4)])
def test_ranks_whose_first_message_waits_for_both_sides_meet_before_the_first_step(
    name, ranks, microbatches, monkeypatch
):
    """As on NCCL, where two ranks are joined when the first message between them is posted."""
    schedule = make_schedule(name, ranks, microbatches)
    joined, isend, irecv = set(), dist.isend, dist.irecv

    def joining(post, tensor, group, **peer):
        work, (place,) = post(tensor, group=group, **peer), peer.values()
        me = dist.get_rank()
        if (me, place, group.group_name) not in joined:
            joined.add((me, place, group.group_name))
            work.wait()
        return work

    monkeypatch.setattr(dist, "isend", lambda tensor, **how: joining(isend, tensor, **how))
    monkeypatch.setattr(dist, "irecv", lambda tensor, **how: joining(irecv, tensor, **how))

    def program(backend):
        dist.init_process_group(backend)
        everyone = range(ranks)
        return step(schedule, group=dist.new_group(everyone), grad_group=dist.new_group(everyone))

    found, _ = zip(*tinydist.launch(program, ranks, "nccl", init=False).results)
    expected, _ = in_one_process(schedule.stages, microbatches)
    assert_every_rank_has(expected, [{stage: each for mine in found for stage, each in mine.items()}])
    joined.clear()
    with pytest.raises(tinydist.DeadlockError):
        tinydist.launch(program, ranks, "gloo", init=False)


# What a stage's backwards run in, and forward alone.


@pytest.mark.parametrize("name", ["1F1B", "ZB-H1", "interleaved 1F1B", "DualPipeV"])
def test_all_backwards_of_a_stage_but_the_last_run_in_its_context(name):
    schedule = make_schedule(name, 2, 4)

    def program():
        quiet, seen = [], {}

        @contextmanager
        def no_sync(stage):
            quiet.append(stage)
            yield
            quiet.pop()

        everything = blocks(schedule.stages)
        mine = {stage: everything[stage] for stage in schedule.stages_of(dist.get_rank())}
        for stage, block in mine.items():
            weight, seen[stage] = block[0].weight, []
            weight.register_post_accumulate_grad_hook(lambda _, stage=stage: seen[stage].append([*quiet]))
        contexts = {stage: partial(no_sync, stage) for stage in mine}
        Worker(schedule, mine, torch.empty(ROWS, WIDTH, device="meta"), F.mse_loss, no_sync=contexts).step(*batch(4))
        return seen

    for seen in tinydist.launch(program, 2).results:
        assert seen == {stage: [[stage]] * 3 + [[]] for stage in seen}


@each_schedule
def test_evaluation_has_the_loss_of_a_step_and_no_gradients(name):
    schedule = make_schedule(name, 2, 4)

    def program():
        everything = blocks(schedule.stages)
        mine = {stage: everything[stage] for stage in schedule.stages_of(dist.get_rank())}
        worker = Worker(schedule, mine, torch.empty(ROWS, WIDTH, device="meta"), F.mse_loss)
        loss = worker.evaluate(*batch(4))
        assert not worker.compute.held and all(grad is None for grads in gradients(mine).values() for grad in grads)
        return loss, worker.step(*batch(4))

    for found, expected in tinydist.launch(program, 2, observe=False).results:
        assert (found is None and expected is None) or torch.equal(found, expected)
