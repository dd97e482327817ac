"""Answers that would fool a check which looks at less: each is rejected, and told what it does."""

import math
import threading

import pytest
import torch
import torch.distributed as dist
from lab.toy_course import toy as toy

from tinydist.lab import judge

KEPT = {}


def named(answer):
    answer.__name__ = "average"
    return answer


def right(tensor):
    total = tensor.clone()
    dist.all_reduce(total)
    total /= dist.get_world_size()
    return total


def reason(answer):
    verdict = judge(named(answer))
    assert verdict.state == "wrong", verdict
    return str(verdict.wrong)


def test_a_right_answer_passes(toy):
    verdict = judge(named(right))
    assert verdict.passed, verdict


# Its tools are out of reach.


@pytest.mark.parametrize(
    "place, name",
    [(torch, "allclose"), (torch, "isclose"), (math, "isclose"), (torch.Tensor, "double"), (torch.Tensor, "__eq__")],
)
def test_what_the_lab_measures_with_cannot_be_replaced(toy, place, name):
    before = getattr(place, name)

    def average(tensor):
        setattr(place, name, lambda *others, **more: True)
        return tensor.clone()

    try:
        assert f"it replaces {place.__name__}.{name}, with which the lab measures" in reason(average)
        assert getattr(place, name) is before
    finally:
        setattr(place, name, before)


def test_built_in_functions_cannot_be_replaced(toy, monkeypatch):
    import builtins

    monkeypatch.setattr(builtins, "abs", abs)  # afterwards it is what it was, whatever the lab does

    def average(tensor):
        builtins.abs = lambda number: 0
        return tensor.clone()

    assert "it replaces builtins.abs" in reason(average)


def test_the_labs_own_functions_cannot_be_replaced(toy):
    from tinydist.lab import results

    def average(tensor):
        results.close = lambda *things: True
        return tensor.clone()

    assert "it replaces tinydist.lab.results.close" in reason(average)


class Anything(torch.Tensor):
    """It equals whatever it is compared with."""

    @classmethod
    def __torch_function__(cls, function, types, args=(), kwargs=None):
        return True


def test_an_object_that_equals_everything_is_no_tensor(toy):
    assert "an object of type Anything, where a tensor" in reason(lambda tensor: tensor.as_subclass(Anything))


class Always(float):
    def __eq__(self, other):
        return True

    def __sub__(self, other):
        return 0.0


class Number:
    """What a tensor's ``[0].item()`` would give."""

    def __getitem__(self, place):
        return self

    def item(self):
        return Always(1)


def test_an_object_that_equals_everything_is_no_number(toy):
    toy.program = lambda answer, tensor: answer(tensor)[0].item()
    assert "an object of type Always, where a number is right" in reason(lambda tensor: Number())


# What it does is seen.


def test_a_thread_of_its_own(toy):
    def average(tensor):
        worker = threading.Thread(target=lambda: None)
        worker.start()
        worker.join()
        return right(tensor)

    assert "it starts a thread of its own" in reason(average)


def test_switched_off_dispatch(toy):
    def average(tensor):
        with torch._C._DisableTorchDispatch():
            total = tensor.clone()
        dist.all_reduce(total)
        total /= dist.get_world_size()
        return total

    assert "it switches torch's dispatch off" in reason(average)


def test_dispatch_that_is_switched_off_within_a_line(toy):
    def average(tensor):
        with torch._C._DisableTorchDispatch():
            total = tensor.clone()
        dist.all_reduce(total)
        total /= dist.get_world_size()
        return total  # fmt: skip

    assert "it switches torch's dispatch off" in reason(average)


def test_functions_of_torch_count_where_building_is_the_task(toy):
    def average(tensor):
        parts = [torch.empty_like(tensor) for _ in range(dist.get_world_size())]
        dist.all_gather(parts, tensor)
        return torch.mean(torch.stack(parts), dim=0)

    assert "you call torch's mean, which already solves this" in reason(average)


def test_a_method_of_a_tensor_is_the_same_function(toy):
    def average(tensor):
        parts = [torch.empty_like(tensor) for _ in range(dist.get_world_size())]
        dist.all_gather(parts, tensor)
        return torch.stack(parts).mean(0)

    assert "you call torch's mean, which already solves this" in reason(average)


def test_the_solution_itself(toy):
    assert "you call the solution of average" in reason(lambda tensor: toy.reference(tensor))


# What travels counts.


def test_values_from_a_global(toy):
    """Ranks of a check are threads, and see each other's numbers there; what is sent is for show."""

    def average(tensor):
        KEPT[dist.get_rank()] = tensor.clone()
        dist.all_reduce(tensor.clone())
        return sum(KEPT[rank] for rank in range(dist.get_world_size())) / dist.get_world_size()

    assert "the results do not follow what is sent" in reason(average)


def test_a_marker_in_what_is_sent(toy):
    """One number travels honestly, and the others come from elsewhere."""

    def average(tensor):
        KEPT[dist.get_rank()] = tensor.clone()
        total = tensor.clone()
        dist.all_reduce(total)
        total /= dist.get_world_size()
        total[1:] = (sum(KEPT[rank] for rank in range(dist.get_world_size())) / dist.get_world_size())[1:]
        return total

    assert "the results do not follow what is sent" in reason(average)


def test_zeros_that_are_sent(toy):
    def average(tensor):
        KEPT[dist.get_rank()] = tensor.clone()
        dist.all_reduce(torch.zeros_like(tensor))
        return sum(KEPT[rank] for rank in range(dist.get_world_size())) / dist.get_world_size()

    assert "the results do not follow what is sent" in reason(average)


def test_zeros_that_are_sent_in_a_group_of_the_answers_own(toy):
    def average(tensor):
        ranks = list(range(dist.get_world_size()))
        KEPT[dist.get_rank()] = tensor.clone()
        dist.all_reduce(torch.zeros_like(tensor), group=dist.new_group(ranks))
        return sum(KEPT[rank] for rank in ranks) / len(ranks)

    assert "the results do not follow what is sent" in reason(average)


def test_numbers_are_changed_one_by_one(toy):
    """By one factor for all of a rank's, whoever sends that factor alone would pass."""
    plain, followed = toy.right(toy.cases[1]), toy.right(toy.hidden)
    sent = toy.hidden.arguments(toy.hidden.changed)[0]
    factors = (3 * (followed.returned[0] - plain.returned[0]) + sent)[1:] / sent[1:]
    assert len(set(factors.tolist())) == len(factors) and (factors > 0.4).all() and (factors < 2.1).all()


# What is kept outside of tensors is memory.


def kept_as_numbers(tensor):
    return tensor.tolist()


def kept_as_an_array(tensor):
    return tensor.numpy().copy()


def kept_as_bytes(tensor):
    return bytearray(tensor.numpy())


def kept_pickled(tensor):
    import pickle

    return pickle.dumps(tensor)


@pytest.mark.parametrize("keep", [kept_as_numbers, kept_as_an_array, kept_as_bytes, kept_pickled])
def test_what_is_kept_outside_of_tensors_is_counted(toy, keep):
    def average(tensor):
        kept = [keep(tensor)]
        result = right(tensor)
        del kept
        return result

    assert "numbers are kept outside of tensors" in reason(average)


def keeps_nothing(tensor):
    return right(tensor)


def works_in_parts(tensor):
    total = tensor.clone()
    for part in total.split(1000):
        dist.all_reduce(part)
        part.div_(dist.get_world_size())
    return total


def has_some_names(tensor):
    names = {f"part {i}": i for i in range(10)}
    total = right(tensor)
    return total if len(names) == 10 else None


@pytest.mark.parametrize("answer", [keeps_nothing, works_in_parts, has_some_names])
def test_right_answers_take_little_besides_tensors(toy, answer):
    verdict = judge(named(answer))
    assert verdict.passed, verdict


# A number is followed in whatever message it travels.


def in_two_messages(tensor):
    half = tensor.numel() // 2
    parts = [tensor.flatten()[half:].clone(), tensor.flatten()[:half].clone()]
    for part in parts:
        dist.all_reduce(part)
    return torch.cat(parts[::-1]).view_as(tensor) / dist.get_world_size()


def upside_down(tensor):
    total = tensor.flip(0)
    dist.all_reduce(total)
    return total.flip(0) / dist.get_world_size()


@pytest.mark.parametrize("answer", [in_two_messages, upside_down])
def test_a_right_answer_may_arrange_what_it_sends(toy, answer):
    verdict = judge(named(answer))
    assert {line.name: line.state for line in verdict.lines}["communication"] == "ok", verdict


def test_a_marker_beside_what_comes_from_elsewhere(toy):
    """In two messages, of which one is honest."""

    def average(tensor):
        KEPT[dist.get_rank()] = tensor.clone()
        total = in_two_messages(tensor)
        total[-1:] = (sum(KEPT[rank] for rank in range(dist.get_world_size())) / dist.get_world_size())[-1:]
        return total

    assert "the results do not follow what is sent" in reason(average)


def test_numbers_of_each_size_are_changed_by_value():
    from tinydist.lab.cases import by_value

    numbers = torch.tensor([1e-9, 1.1e-9, 0.3, -0.33, 1e5, 1.1e5, 0.0])
    factors = by_value(numbers)
    assert ((factors[:-1] - 1).abs() > 0.01).all() and len(set(factors.tolist())) == 7
    assert (factors >= 0.5).all() and (factors <= 2).all()
    assert torch.allclose(by_value(numbers * (1 + 1e-6)), factors, rtol=1e-4)
