"""What an answer leaves behind, beside what the reference leaves: in lists, dicts and dataclasses."""

from dataclasses import dataclass

import pytest
import torch

from tinydist.lab.author import Case, Malformed, Memory, Values, Wrong, alone
from tinydist.lab.results import kind_of, leaves, untouched
from tinydist.lab.worlds import Trial


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
    assert kind_of({"a": 1, "b": 2}) == "a dict: 'a', 'b'"


@pytest.mark.parametrize("ranks, done", [(1, "computed"), (2, "sent, or added,")])
def test_a_smaller_dtype(ranks, done):
    """Nobody sends where there is one rank."""
    case = Case(ranks, lambda rank: (torch.arange(8.0) + 0.3,))
    answer, right = (Trial(program, case) for program in (lambda x: x.bfloat16().float(), torch.clone))
    with pytest.raises(Wrong, match=f"are they {done} in a smaller dtype"):
        Values("", scratch=True).judge(None, answer, right)
