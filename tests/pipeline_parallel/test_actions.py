"""Actions are written as torch writes them, and read back."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from torch.distributed.pipelining.schedules import _Action

from tinydist.pipeline_parallel import Action, Overlap, parse
from tinydist.pipeline_parallel.schedule import COMPUTE, ENDING, MESSAGES, RECOMPUTE, message_of, needs, result_of
from tinydist.torch_internals import pipeline_kinds

numbers = st.integers(0, 10_000)
actions = st.builds(Action, numbers, st.sampled_from((*COMPUTE, RECOMPUTE, *MESSAGES, *ENDING)), numbers)
overlaps = st.builds(
    Overlap, st.builds(Action, numbers, st.just("F"), numbers), st.builds(Action, numbers, st.just("B"), numbers)
)


@given(st.one_of(actions, overlaps))
def test_read_back(action):
    assert parse(str(action)) == parse(f" {action} ") == action
    if getattr(action, "kind", "OVERLAP_F_B") in pipeline_kinds():
        assert str(_Action.from_str(str(action))) == str(action)


def test_as_in_the_papers():
    assert str(Action(2, "F", 0)) == "2F0" and parse("10SEND_B3") == Action(10, "SEND_B", 3)
    assert parse("(0F3;3B1)OVERLAP_F_B").parts == (Action(0, "F", 3), Action(3, "B", 1))


@pytest.mark.parametrize("text", ["", "F0", "2F", "2X0", "2F0 2F1", "-1F0", "(0F3)OVERLAP_F_B", "2UNSHARD"])
def test_no_action(text):
    with pytest.raises(
        ValueError, match=r"^parse: an action has the form \[stage\]\[kind\]\[microbatch\], as in 2F0, got "
    ):
        parse(text)


@pytest.mark.parametrize(
    "action, needed",
    [("0F1", None), ("2F1", "1F1"), ("2B1", "3B1"), ("2I1", "3B1"), ("3B1", "3F1"), ("3I1", "3F1"), ("2W1", "2B1")]
    + [("0NORM1", None), ("1NORM1", "0NORM1"), ("0CHECK1", "1CHECK1"), ("1CHECK1", "1NORM1"), ("2R1", None)],
)
def test_what_a_pass_needs(action, needed):
    assert needs(parse(action), stages=4, ranks=2) == (needed and parse(needed))


def test_what_a_message_brings():
    assert message_of(parse("2F1")) == (parse("2SEND_F1"), parse("3RECV_F1"))
    assert message_of(result_of(parse("2I1"))) == (parse("2SEND_B1"), parse("1RECV_B1"))
