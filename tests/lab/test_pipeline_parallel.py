"""The exercises on pipeline parallel: what they are judged by is right, and other right answers pass."""

from functools import cache
from itertools import product

import matplotlib.pyplot as plt
import pytest
import torch
import torch.distributed as dist
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from lab.shipped import ROOT

from tinydist.lab import judge
from tinydist.lab.chapters.pipeline_parallel import interleaved, least_bubble, mended_pipeline
from tinydist.lab.chapters.pipeline_parallel.choices import first_worse
from tinydist.lab.chapters.pipeline_parallel.lower_bound import lower_bound
from tinydist.lab.chapters.pipeline_parallel.virtual_time import seconds
from tinydist.lab.chapters.pipeline_parallel.watched_stage import LAYERS, in_one_process
from tinydist.lab.notebook import answer_in
from tinydist.lab.ranks import Trial
from tinydist.pipeline_parallel import Costs, Schedule, analyze, make_schedule, parse, verify


@cache
def solution(name):
    return answer_in(ROOT / "solutions" / "08_pipeline_parallel.ipynb", name)


def designed(ranks, microbatches, budget):
    programs = [solution("least_bubble")(rank, ranks, microbatches, budget) for rank in range(ranks)]
    return verify(
        Schedule("designed", tuple(tuple(map(parse, each)) for each in programs), ranks, microbatches), budget
    )


# The lower bound.


@pytest.mark.parametrize("name", ["naive", "GPipe", "1F1B", "ZB-H1", "ZB-H2"])
def test_no_schedule_beats_the_lower_bound(name):
    for ranks, microbatches in product((1, 2, 3, 4, 6), (1, 2, 3, 5, 8, 12)):
        found = analyze(make_schedule(name, ranks, microbatches))
        assert found.makespan >= lower_bound(ranks, microbatches, int(max(found.peak)))


def any_schedule(data, ranks, microbatches, budget):
    """Each second, each rank draws one of the passes that it can do, or none."""
    programs, ends, now = [[] for _ in range(ranks)], {}, 0
    did = [dict.fromkeys("FIW", 0) for _ in range(ranks)]
    while any(done["W"] < microbatches for done in did):
        for rank, done in enumerate(did):
            can = []
            if done["F"] < microbatches and done["F"] - done["W"] < budget:
                can += "F" if not rank or ends.get((rank - 1, "F", done["F"]), now + 1) <= now else ""
            if done["I"] < done["F"]:
                can += "I" if rank == ranks - 1 or ends.get((rank + 1, "I", done["I"]), now + 1) <= now else ""
            can += "W" if done["W"] < done["I"] else ""
            if can:
                kind = data.draw(st.sampled_from(can))
                programs[rank].append(parse(f"{rank}{kind}{done[kind]}"))
                ends[rank, kind, done[kind]] = now + 1
                done[kind] += 1
        now += 1
    return verify(Schedule("any", tuple(map(tuple, programs)), ranks, microbatches), budget)


@settings(max_examples=30, deadline=None)
@given(st.data())
def test_nor_does_one_that_is_drawn(data):
    ranks, microbatches = data.draw(st.integers(1, 4)), data.draw(st.integers(1, 6))
    budget = data.draw(st.integers(1, ranks + 1))
    found = analyze(any_schedule(data, ranks, microbatches, budget))
    assert found.makespan >= lower_bound(ranks, microbatches, budget)


def test_it_is_reached():
    """With room for P microbatches, and P or more of them; with room for one, whatever their number."""
    for ranks, more in product((1, 2, 3, 5), (0, 4)):
        microbatches = ranks + more
        assert lower_bound(ranks, microbatches, ranks) == ranks - 1 + 3 * microbatches
        assert analyze(designed(ranks, microbatches, ranks)).makespan == lower_bound(ranks, microbatches, ranks)
        assert analyze(designed(ranks, microbatches, 1)).makespan == lower_bound(ranks, microbatches, 1)


def test_the_solution_uses_half_of_the_room():
    for size in least_bubble.TIGHT:
        assert analyze(designed(*size)).makespan / lower_bound(*size) - 1 < 0.6 * (least_bubble.ROOM - 1)


# Where another pass had been better.


@pytest.mark.parametrize("size", least_bubble.AMPLE + least_bubble.TIGHT)
def test_the_solution_leaves_nothing_better(size):
    schedule = designed(*size)
    assert first_worse(schedule, analyze(schedule), size[-1]) == ""


@settings(max_examples=30, deadline=None)
@given(st.data())
def test_a_bubble_has_a_reason(data):
    """What is above the lower bound could have done another pass, somewhere."""
    ranks = data.draw(st.integers(1, 4))
    schedule = any_schedule(data, ranks, microbatches := data.draw(st.integers(ranks, 6)), budget := ranks)
    found = analyze(schedule)
    if found.makespan > lower_bound(ranks, microbatches, budget):
        assert "rank " in first_worse(schedule, found, budget)


# Interleaved: what is granted is what the library's needs.


@pytest.mark.parametrize("P, M, v", interleaved.SIZES)
def test_interleaved_needs_what_is_granted(P, M, v):
    schedule = make_schedule("interleaved 1F1B", P, M, v)
    assert analyze(schedule).peak == [interleaved.forwards_ahead(schedule, rank) + 1 for rank in range(P)]
    assert analyze(schedule, Costs(1, 1, 1)).makespan == 3 * (M * v + P - 1)
    for judge_it in (interleaved.short_bubble, interleaved.hidden, interleaved.holds_few):
        judge_it(schedule, P, M, v)


# The worker.


def test_one_process_is_a_plain_model():
    arrived, gradients, loss = in_one_process(3, 4)
    assert [len(each) for each in arrived] == [4, 4, 4] and len(gradients) == 3
    batch = mended_pipeline.batch(4)
    model = torch.nn.Sequential(*map(mended_pipeline.Stage, range(3)))
    whole = F.mse_loss(*[torch.cat(each) if i else model(torch.cat(each)) for i, each in enumerate(zip(*batch))])
    whole.backward()
    assert whole.item() == pytest.approx(loss)
    for stage, expected in zip(model, gradients):
        for weight, right in zip(stage.weights, expected):
            torch.testing.assert_close(weight.grad, right)


def test_a_worker_may_batch_what_crosses():
    def mended_pipeline(stage, microbatches, like):
        rank, ranks, M = dist.get_rank(), dist.get_world_size(), len(microbatches)
        held, losses = [], []

        def exchange(there, send=None, receive=False):
            """Send to a neighbor, and receive from it, at once."""
            buffer = torch.empty_like(like, device="cpu") if receive else None
            both = [(dist.isend, send), (dist.irecv, buffer)]
            both = [dist.P2POp(op, tensor, there) for op, tensor in both if tensor is not None]
            for work in dist.batch_isend_irecv(both):
                work.wait()
            return buffer

        def forward(number, x):
            x = x if rank else microbatches[number][0]
            y = stage(x.requires_grad_() if rank else x)
            if rank == ranks - 1:
                y = F.mse_loss(y, microbatches[number][1]) / M
                losses.append(y.detach())
            held.append((x, y))
            return y.detach()

        def backward(gradient):
            x, y = held.pop(0)
            y.backward(gradient)
            return x.grad

        down, up = rank < ranks - 1, rank > 0
        ahead, x = min(ranks - 1 - rank, M), None
        for number in range(ahead):
            y = forward(number, exchange(rank - 1, receive=True) if up else None)
            exchange(rank + 1, y)
        if up and ahead < M:
            x = exchange(rank - 1, receive=True)
        for number in range(ahead, M):
            y = forward(number, x)
            gradient = backward(exchange(rank + 1, y, receive=True) if down else None)
            if up:
                x = exchange(rank - 1, gradient, receive=number < M - 1)
        for _ in range(ahead):
            gradient = backward(exchange(rank + 1, receive=True))
            if up:
                exchange(rank - 1, gradient)
        return sum(losses)

    verdict = judge(mended_pipeline)
    assert verdict.passed, verdict


@pytest.mark.parametrize("P, M", mended_pipeline.SIZES)
def test_a_forward_takes_a_second_and_a_backward_two(P, M):
    """The first stage's last backward, which ends the step, is 1/8 of a forward shorter."""
    trial = Trial(solution("mended_pipeline"), mended_pipeline.case(P, M))
    short = (M if P == 1 else 1) / LAYERS
    assert seconds(trial) == pytest.approx(3 * (M + P - 1) - short)


def test_the_worker_that_is_given_hangs_on_what_crosses():
    """With one microbatch nothing does: then it ends."""
    trial = Trial(mended_pipeline.mended_pipeline, mended_pipeline.case(2, 2))
    assert "DeadlockError" in repr(trial.error)
    assert Trial(mended_pipeline.mended_pipeline, mended_pipeline.case(2, 1)).error is None


# The pictures.


def test_what_is_wrong_is_drawn(capsys):
    def gpipe(rank, ranks, microbatches):
        return [f"{rank}{kind}{each}" for each in range(microbatches) for kind in "FB"]

    figure = judge(gpipe).wrong.picture()
    assert "gpipe, 3 ranks, 4 microbatches: 36 s, 67 % of it idle" in capsys.readouterr().out
    assert len(figure.axes[0].patches) == 3 * 2 * 4
    plt.close(figure)
