"""The exercises on data parallel training: what they are judged by is what the library does and the formulas say."""

import pytest
import torch
from torch import nn

from tinydist import launch
from tinydist.data_parallel import DDP, DataParallel
from tinydist.hardware import Cluster
from tinydist.hardware.costs import ring_all_reduce
from tinydist.lab import judge
from tinydist.lab.messages import started
from tinydist.syllabus.registry import find, of_chapter


def beside(name):
    """What stands in the file of an exercise."""
    return vars(find(name).module)


@pytest.mark.parametrize("ranks", [2, 3, 4])
@pytest.mark.parametrize("counts", [(1, 2, 3), (3, 1, 3), (5,)])
@pytest.mark.parametrize("link", ["SLOW", "FAST"])
def test_overlap_takes_the_time_of_the_closed_form(ranks, counts, link):
    """Each all-reduce starts when its bucket is full, or when the one before it has ended."""
    file = beside("overlap")
    link, product = file[link], file["PRODUCT"]
    now = end = sum(counts) * product  # forward
    for number, count in enumerate(counts, start=1):
        now += (2 * count - (number == len(counts))) * product
        end = max(end, now) + ring_all_reduce(count * file["LAYER"], ranks, link)
    run = find("overlap").right(file["case"](ranks, counts, measured=True)).run
    assert run.on(Cluster(file["PRODUCTS"], ranks, link)).seconds == pytest.approx(end, rel=1e-9)


@pytest.mark.parametrize("ranks", [2, 4])
def test_on_each_link_another_side_of_the_maximum_counts(ranks):
    file = beside("overlap")
    backward = 2 * file["PRODUCT"]  # of a layer
    slow, fast = (ring_all_reduce(file["LAYER"], ranks, file[link]) for link in ("SLOW", "FAST"))
    assert fast < backward < slow


@pytest.mark.parametrize("ranks", [2, 4])
@pytest.mark.parametrize("counts", [(1, 2, 3), (3, 1, 3), (5,)])
@pytest.mark.parametrize("link", ["SLOW", "FAST"])
def test_buckets_take_the_time_that_a_run_of_them_takes(ranks, counts, link):
    """As ``best_buckets`` computes it, on the links on which overlap is judged."""
    file = beside("overlap")
    product, layers = file["PRODUCT"], sum(counts)
    backward = [2 * product] * (layers - 1) + [product]  # the first layer's inputs need no gradient
    latency = ring_all_reduce(0, ranks, file[link])
    bandwidth = file["LAYER"] / (ring_all_reduce(file["LAYER"], ranks, file[link]) - latency)
    computed = beside("best_buckets")["averaged_at"](counts, backward, [file["LAYER"]] * layers, latency, bandwidth)
    run = find("overlap").right(file["case"](ranks, counts, measured=True)).run
    forward = layers * product
    assert run.on(Cluster(file["PRODUCTS"], ranks, file[link])).seconds == pytest.approx(forward + computed, rel=1e-9)


def test_branches_fill_their_buckets_in_different_orders():
    """Else buckets that start as they fill would pass."""
    file, orders = beside("overlap"), []
    for rank in (0, 1):
        model = file["build"](file["Branches"], (), rank)
        ready = []
        for number, bucket in enumerate(model.buckets):
            bucket[0].register_post_accumulate_grad_hook(lambda _, number=number: ready.append(number))
        file["backward"](model, rank, 0)
        orders.append(ready)
    assert orders == [[1, 0, 2], [0, 1, 2]]


def test_average_gradients_sends_gradients_and_one_number():
    exercise = find("average_gradients")
    run = exercise.right(beside("average_gradients")["case"]((4, 1, 0, 2))).run
    assert [sum(row) for row in run.traffic] == [2 * 3 / 4 * (10 + 1) * 4] * 4


def test_overlap_keeps_nothing():
    """Granted is as much as the gradients; the solution uses none of it."""
    file = beside("overlap")
    size = 6 * file["LAYER"]  # of the gradients that are noted in each step
    few, more = (find("overlap").right(file["case"](2, (1, 2, 3), steps, True)).run.memory[0].peak for steps in (2, 4))
    assert more - few == 2 * size


def test_accumulation_holds_half_of_what_is_granted():
    exercise, one = find("accumulate"), beside("accumulate")["ONE"]  # as much is granted once more
    (case,) = (case for case in exercise.cases if case.measured)
    given = 2 * sum(case.arguments(0)[1]) * 8 * 4
    for memory in exercise.right(case).run.memory:
        assert one <= max(held["activations"] for _, held in memory.over_time()) - given <= 1.5 * one


def test_the_loop_with_bugs_runs_on_one_rank_and_hangs_on_two():
    exercise = find("mended_training")
    names = {}
    exec(exercise.source, {**beside("mended_training")}, names)
    states = [exercise.trial(names["mended_training"], case).error for case in exercise.cases]
    assert states[-1] is None and "DeadlockError" in repr(states[0])


def test_mended_training_leaves_half_of_the_room():
    """Granted is the state once more; one number, the loss, is used."""
    exercise = find("mended_training")
    right = exercise.right(exercise.cases[1])
    model, loader, epochs = right.arguments[0]
    whole = sum(tensor.nbytes for tensor in model.state_dict().values())
    steps = epochs * len(loader) * sum(parameter.nbytes for parameter in model.parameters())
    assert sum(call.nbytes for call in started(right.run, 0)) - steps - whole == 4 <= whole / 2


def test_mended_training_is_that_of_one_process():
    """One model, trained on the batches of all ranks."""
    exercise, ranks = find("mended_training"), 3
    right = exercise.right(exercise.cases[1])
    model, loaders = right.case.arguments(0)[0], [right.case.arguments(rank)[1] for rank in range(ranks)]
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    for epoch in range(right.arguments[0][2]):
        for loader in loaders:
            loader.sampler.set_epoch(epoch)
        for batches in zip(*loaders):
            optimizer.zero_grad()
            loss = sum(nn.functional.mse_loss(model(inputs), targets) for inputs, targets in batches) / ranks
            loss.backward()
            optimizer.step()
    for returned in right.returned:
        torch.testing.assert_close(returned["the loss"], loss.detach())
        torch.testing.assert_close(returned["the parameters at the end"], dict(model.named_parameters()))


@pytest.mark.parametrize("sizes", beside("predict_traffic")["SIZES"], ids=str)
def test_traffic_is_predicted_as_it_is_measured(sizes):
    """What a second step adds to the traffic of the busiest rank."""
    predicted = find("predict_traffic").reference(*beside("predict_traffic")["world"](*sizes).arguments(0))
    for way, both in predicted.items():
        one, two = (traffic(way, *sizes, steps) for steps in (1, 2))
        sent, received = (two - one).sum(1), (two - one).sum(0)
        rank = int((sent + received).argmax())
        assert both == pytest.approx((sent[rank].item(), received[rank].item()))


def traffic(way, ranks, into, out, rows, microbatches, steps):
    def program():
        model = nn.Sequential(nn.Linear(into, into, bias=False).requires_grad_(False), nn.Linear(into, out, bias=False))
        model = DataParallel(model) if way == "DP" else DDP(model)
        for number in range(steps * microbatches):
            model.require_backward_grad_sync = number % microbatches == microbatches - 1
            batch = torch.ones(rows // microbatches if way == "DP" else rows // microbatches // ranks, into)
            model(batch).sum().backward()

    return torch.tensor(launch(program, ranks, backend="simulated").traffic)


def test_a_check_leaves_the_readers_random_numbers_alone():
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    for exercise in of_chapter("05_data_parallel") + of_chapter("05b_scaling_data_parallel"):
        assert judge(exercise.variant()).passed
    assert torch.equal(torch.rand(3), expected)
