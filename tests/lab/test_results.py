"""What an answer leaves behind, beside what the reference leaves: in lists, dicts and dataclasses."""

from dataclasses import dataclass

import pytest
import torch
import torch.distributed as dist
from lab.mini import exercise

from tinydist.lab.author import Case, Malformed, Memory, Values, Wrong, alone
from tinydist.lab.cases import Trial
from tinydist.lab.differences import slightly_off, untouched
from tinydist.lab.exercise import Mistake
from tinydist.lab.leaves import kind, leaves
from tinydist.lab.target import because


@dataclass
class Box:
    written: torch.Tensor
    read: torch.Tensor


def trial(program):
    return Trial(program, alone(lambda: (Box(torch.zeros(2), torch.ones(2)),), "a box"))


def writes(box):
    box.written += 1


def writes_more(box):
    box.written += 2
    box.read += 1


def replaces(box):
    box.read = None


def test_what_stands_in_a_dataclass_has_a_name():
    assert list(leaves((Box(1, [2, 3]),), ["box"])) == ["written of box", "read of box[0]", "read of box[1]"]


def test_the_answer_may_write_where_the_reference_does():
    untouched(trial(writes), ["box"], trial(writes))


@pytest.mark.parametrize("answer", [writes_more, replaces])
def test_what_the_reference_leaves_alone_stays(answer):
    with pytest.raises(Malformed, match="read of box has changed: it belongs to the caller"):
        untouched(trial(answer), ["box"], trial(writes))


def keeps(box):
    box.more = box.read.clone()


@pytest.mark.parametrize("answer", [keeps, lambda box: box.read.clone()])
def test_what_is_held_is_counted_besides_what_was_given(answer):
    assert Memory("").seen(trial(answer)) == [8]


def test_a_dict_is_told_by_its_keys():
    assert kind({"a": 1, "b": 2}) == "a dict: 'a', 'b'"


@pytest.mark.parametrize("ranks, done", [(1, "computed"), (2, "sent, or added,")])
def test_a_smaller_dtype(ranks, done):
    """Nobody sends where there is one rank."""
    case = Case(ranks, lambda rank: (torch.arange(8.0) + 0.3,))
    answer, right = (Trial(program, case) for program in (lambda x: x.bfloat16().float(), torch.clone))
    with pytest.raises(Wrong, match=f"are they {done} in a smaller dtype"):
        Values("", scratch=True).judge(None, answer, right)


# Values, returned and in place.

CASE = Case(2, lambda rank: (torch.arange(4.0),))


def told(answer, reference=lambda tensor: tensor + 1):
    values = Values("")
    made = exercise(reference, [CASE], values)
    with pytest.raises(Wrong) as caught:
        values.compare(made, made.trial(answer, CASE))
    return str(caught.value)


def in_place(tensor):
    tensor += 1


@pytest.mark.parametrize(
    "reference, answer",
    [
        (in_place, lambda tensor: tensor.add_(1)),  # the tensor itself may be returned
        (in_place, lambda tensor: tensor.add_(1).view(2, 2)),
        (lambda tensor: tensor + 1, lambda tensor: tensor + 1.000001),  # in another order of sums, say
    ],
)
def test_right(reference, answer):
    values = Values("")
    made = exercise(reference, [CASE], values)
    values.compare(made, made.trial(answer, CASE))


def test_last_digits_may_differ_and_no_more():
    assert "on rank 0, 4 of 4 numbers are wrong" in told(lambda tensor: tensor + 1.01)
    assert "nan" in told(lambda tensor: tensor * float("nan"))


def test_in_place_and_returned_are_two_things():
    assert "rank 0 returns a new tensor" in told(lambda tensor: tensor + 1, in_place)
    assert "nothing (None), where a tensor of shape [4] is right" in told(lambda tensor: None)
    assert "where" in told(lambda tensor: tensor.tolist())


def test_a_generator_runs_nothing():
    def answer(tensor):
        yield tensor.add_(1)

    assert "rank 0 returned an object of type generator: calling a generator" in told(answer, in_place)


def test_form():
    assert "shape [3], where [4] is right" in told(lambda tensor: tensor[1:])
    assert "dtype float64, where float32 is right" in told(lambda tensor: tensor.double())


def test_the_first_difference():
    def answer(tensor):
        tensor = tensor + 1
        tensor[2] = 9
        return tensor

    assert told(answer).endswith("n rank 0, 1 of 4 numbers is wrong. The first is at position 2: 9, where 3 is right")


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_numbers_of_fewer_bits(dtype):
    torch.manual_seed(0)
    right = torch.rand(100) + 0.1
    assert 0 < slightly_off(right.to(dtype), right) < 0.5
    text = told(lambda tensor: tensor + 1.01)
    assert text.endswith("They are off by about 0.4 %: are they sent, or added, in a smaller dtype?")


def test_where_a_reason_is_known_none_is_guessed():
    facts = "a number is wrong. They are off by about 0.4 %: are they sent, or added, in a smaller dtype?"
    assert because("it is the sum", facts) == "it is the sum.\nA number is wrong"


@pytest.mark.parametrize("change", [lambda right: right * 1.02, lambda right: right + (torch.arange(100) == 7) * 0.01])
def test_other_differences_are_not_taken_for_those(change):
    right = torch.ones(100)
    assert slightly_off(change(right), right) is None
    assert slightly_off(right, torch.zeros(100)) is None


def test_a_mistake_that_agrees_in_one_place_is_not_told_of_the_whole():
    """Numbers of calls and ranks are small: (2, 0) is not (4, 2) with its two exchanged."""

    def pair(ranks):
        return 4, ranks

    case = alone(lambda: (2,), "a pair")
    for whole, known in [(False, True), (True, False)]:
        values = Values("", whole=whole)
        made = exercise(pair, [case], values)
        made.mistakes.append(Mistake("The two are exchanged", (), False))
        made._runs[case, (made.mistakes[0],)] = Trial(lambda ranks: (ranks, 4), case)
        for answer, exchanged in [((2, 0), known), ((2, 4), True)]:
            with pytest.raises(Wrong) as caught:
                values.compare(made, made.trial(lambda ranks, answer=answer: answer, case))
            assert ("The two are exchanged" in str(caught.value)) == exchanged


def test_a_part_of_another_form_is_told_by_its_name():
    text = told(lambda tensor: {"worst": [1.0], "best": 2.0}, lambda tensor: {"worst": [1.0, 2.0], "best": 2.0})
    assert text == "rank 0 returned worst as a list of 1 thing, where a list of 2 things is right"


@pytest.mark.parametrize("factor, as_many", [(dist.get_world_size, True), (lambda: 2, False)])
def test_twice_too_large_on_two_ranks_is_as_many_as_ranks_only_if_it_is_so_on_three(factor, as_many):
    cases, values = [Case(ranks, lambda rank: (torch.arange(4.0) + rank,)) for ranks in (2, 3)], Values("")
    made = exercise(lambda tensor: tensor + 1, cases, values)
    with pytest.raises(Wrong) as caught:
        values.compare(made, made.trial(lambda tensor: (tensor + 1) * factor(), cases[0]))
    assert "2 times too large" in str(caught.value) and ("as many ranks" in str(caught.value)) == as_many


def test_where_nothing_is_known_a_case_that_is_right_stands_beside():
    cases, values = [alone(lambda n=n: (n,), f"n = {n}") for n in (3, 4, 5)], Values("")
    made = exercise(lambda n: str(n), cases, values)
    with pytest.raises(Wrong) as caught:
        values.compare(made, made.trial(lambda n: "many" if n == 4 else str(n), cases[1]))
    assert str(caught.value).startswith("It is right with n = 5: what is other here?\nThe result is 'many'")
