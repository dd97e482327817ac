"""The values: what is in place and what is returned, its form, and the first difference."""

import pytest
import torch

from tinydist.lab.errors import Wrong
from tinydist.lab.ranks import Case, Trial
from tinydist.lab.values import in_place, returned, slightly_off

CASE = Case(2, lambda rank: (torch.arange(4.0),), expected=[torch.arange(4.0) + 1] * 2)


def told(judge, answer):
    with pytest.raises(Wrong) as caught:
        judge(Trial(answer, CASE))
    return str(caught.value)


def test_right():
    in_place(Trial(lambda tensor: tensor.add_(1), CASE))  # the tensor itself may be returned
    in_place(Trial(lambda tensor: tensor.add_(1).view(2, 2), CASE))
    returned(Trial(lambda tensor: tensor + 1, CASE))


def test_last_digits_may_differ_and_no_more():
    returned(Trial(lambda tensor: tensor + 1.000001, CASE))
    assert "rank 0, 4 of 4 numbers are wrong" in told(returned, lambda tensor: tensor + 1.01)
    assert "nan" in told(returned, lambda tensor: tensor * float("nan"))


def test_in_place_and_returned_are_two_things():
    assert "rank 0 returns a new tensor" in told(in_place, lambda tensor: tensor + 1)
    assert "rank 0 returned nothing (None)" in told(returned, lambda tensor: None)
    assert "rank 0 returned an object of type list" in told(returned, lambda tensor: tensor.tolist())


def test_a_generator_runs_nothing():
    def answer(tensor):
        yield tensor.add_(1)

    assert "rank 0 returned an object of type generator: with `yield`" in told(in_place, answer)


def test_form():
    assert "shape [3], where [4] is right" in told(returned, lambda tensor: tensor[1:])
    assert "dtype float64, where float32 is right" in told(returned, lambda tensor: tensor.double())


def test_first_difference():
    def answer(tensor):
        tensor += 1
        tensor[2] = 9
        return tensor

    text = "on rank 0, 1 of 4 numbers is wrong. The first is at position 2: 9, where 3 is right"
    assert told(returned, answer) == text


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_numbers_of_fewer_bits(dtype):
    torch.manual_seed(0)
    right = torch.rand(100) + 0.1
    assert 0 < slightly_off(right.to(dtype), right) < 0.5
    text = told(returned, lambda tensor: tensor + 1.01)
    assert text.endswith("They are off by about 0.4 %: are they sent, or added, in a smaller dtype?")


@pytest.mark.parametrize("change", [lambda right: right * 1.02, lambda right: right + (torch.arange(100) == 7) * 0.01])
def test_other_differences_are_not_taken_for_those(change):
    right = torch.ones(100)
    assert slightly_off(change(right), right) is None
    assert slightly_off(right, torch.zeros(100)) is None
