"""The exercises on data parallel training: what they are judged by is right, and solutions pass with room."""

from functools import partial

import pytest
import torch
import torch.distributed as dist
from lab.shipped import ROOT

from tinydist.hardware import Cluster
from tinydist.lab import judge
from tinydist.lab.chapters.data_parallel import (
    accumulation,
    averaging,
    kept,
    mended_training,
    overlap,
    step_time,
    traffic,
)
from tinydist.lab.chapters.data_parallel.layers import LAYER
from tinydist.lab.chapters.data_parallel.watched_training import arguments
from tinydist.lab.collectives import collectives
from tinydist.lab.exercise import CATALOGUE
from tinydist.lab.notebook import answer_in
from tinydist.lab.ranks import Case, Trial, Trials


def solution(name):
    return answer_in(ROOT / "solutions" / "05_data_parallel.ipynb", name)


@pytest.mark.parametrize("ranks", [2, 3, 4])
@pytest.mark.parametrize("counts", [(1, 2, 3), (3, 1, 3), (5,)])
@pytest.mark.parametrize("link", [step_time.SLOW, step_time.FAST], ids=["slow", "fast"])
def test_the_closed_form_is_what_the_solution_takes(ranks, counts, link):
    """No room is granted in time but for rounding, and the solution uses none."""
    trial = Trial(partial(overlap.train, solution("overlap")), overlap.case(ranks, counts))
    took = trial.run.on(Cluster(step_time.PRODUCTS, ranks, link)).seconds
    assert took == pytest.approx(step_time.overlapped_seconds(counts, ranks, link), rel=1e-9)


@pytest.mark.parametrize("ranks", [2, 4])
def test_on_each_link_another_side_of_the_maximum_counts(ranks):
    backward = 2 * step_time.PRODUCT  # of a layer
    assert step_time.ring_all_reduce(LAYER, ranks, step_time.FAST) < backward
    assert step_time.ring_all_reduce(LAYER, ranks, step_time.SLOW) > backward


def test_branches_fill_their_buckets_in_different_orders():
    """Else buckets that start as they fill would pass."""
    orders = []
    for rank in (0, 1):
        model = overlap.build(overlap.Branches, (), rank)
        ready = []
        for number, bucket in enumerate(model.buckets):
            bucket[0].register_post_accumulate_grad_hook(lambda _, number=number: ready.append(number))
        overlap.backward(model, rank, 0)
        orders.append(ready)
    assert orders == [[1, 0, 2], [0, 1, 2]]


def test_average_gradients_sends_gradients_and_one_number():
    trial = Trial(solution("average_gradients"), averaging.case((4, 1, 0, 2)))
    assert [sum(row) for row in trial.run.traffic] == [2 * 3 / 4 * (averaging.NBYTES + 4)] * 4


def averages_by(all_reduce, samples_first=False, part=1.0):
    def average_gradients(parameters, samples):
        count = torch.tensor([float(samples)])
        gradients = [torch.zeros(p.numel()) if p.grad is None else p.grad.flatten() * samples for p in parameters]
        flat = torch.cat([count, *gradients] if samples_first else [*gradients, count]) * part
        all_reduce(flat)
        total, sums = (flat[0], flat[1:]) if samples_first else (flat[-1], flat[:-1])
        for parameter, mean in zip(parameters, (sums / total).split([p.numel() for p in parameters])):
            parameter.grad = mean.view_as(parameter)

    return average_gradients


@pytest.mark.parametrize(
    "answer",
    [
        averages_by(dist.all_reduce, samples_first=True),
        averages_by(dist.all_reduce, part=0.1),
        averages_by(partial(dist.all_reduce, op=dist.ReduceOp.AVG)),
        averages_by(lambda flat: dist.all_reduce(flat, async_op=True).wait()),
    ],
    ids=["samples first", "scaled", "average", "async"],
)
def test_however_the_numbers_are_laid_out_the_all_reduce_is_heard(answer):
    assert judge(answer).passed


def test_overlap_keeps_nothing():
    """Granted is as much as the gradients; the solution uses none of it."""
    trials = Trials(partial(overlap.train, solution("overlap")), overlap.cases())
    few, more = (kept.of_steps(trials, steps) for steps in (kept.FEW, kept.MORE))
    assert kept.held(few, 0) == kept.held(more, 0)


def test_accumulation_holds_half_of_what_is_granted():
    case = accumulation.case(2, (accumulation.LARGE,) * 4)
    trial = Trial(partial(accumulation.train, solution("accumulate")), case)
    one = accumulation.ONE  # as much is granted once more
    assert [one <= held <= 1.5 * one for held in accumulation.activations(trial)] == [True, True]


def test_the_loop_with_bugs_runs_on_one_rank_and_hangs_on_two():
    stub = CATALOGUE["mended_training"].stub
    assert Trial(stub, Case(1, arguments)).error is None
    assert "DeadlockError" in repr(Trial(stub, Case(2, arguments)).error)


def test_mended_training_leaves_half_of_the_room():
    """Granted is the state once more; one number, the loss, is used."""
    trial = Trial(solution("mended_training"), Case(3, arguments))
    model, loader, epochs = trial.arguments[0]
    whole = sum(tensor.nbytes for tensor in model.state_dict().values())
    steps = epochs * len(loader) * sum(parameter.nbytes for parameter in model.parameters())
    assert sum(call.nbytes for call in collectives(trial)) - steps - whole == 4 <= whole / 2
    mended_training.nbytes(trial)


@pytest.mark.parametrize("sizes", traffic.SIZES, ids=str)
def test_shares_are_what_is_measured(sizes):
    """Which term is wrong is told by them: they must be right themselves."""
    given = traffic.setting(*sizes).arguments(0)
    terms = dict(zip(traffic.TERMS, (given[0], given[2], given[3]), strict=True))
    for way, measured in traffic.measured(*sizes).items():
        for direction, nbytes in zip(traffic.DIRECTIONS, measured, strict=True):
            shares = traffic.shares(way, direction, sizes[0])
            assert sum(shares[term] * terms[term] for term in terms) == pytest.approx(nbytes)


def test_a_check_leaves_the_readers_random_numbers_alone():
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    for name in ("average_gradients", "overlap", "accumulate", "mended_training", "predict_traffic"):
        assert judge(solution(name)).passed
    assert torch.equal(torch.rand(3), expected)
