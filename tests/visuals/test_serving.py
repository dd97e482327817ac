"""Blocks by owner, block tables, and requests in slots."""

import pytest
from visuals.drawn import assert_can_be_read

from tinydist import visuals
from tinydist.hardware import find_device
from tinydist.planner import find_model
from tinydist.serving import BlockPool, ContinuousBatching, StaticBatching, StepCost, TraceRequest, replay

COST = StepCost(find_model("OPT 13B"), find_device("A100 40GB"))


def test_blocks_by_owner(capsys):
    figure = visuals.block_owners({"before": [*"AABB  "], "after": [*"AA  CA"]}, 2)
    assert len(figure.axes[0].patches) == 12
    assert [label.get_text() for label in figure.axes[0].get_xticklabels()] == ["0", "1", "2"]
    assert capsys.readouterr().out == "tokens in memory at the end: 3 of A, 1 of C\n"
    assert_can_be_read(figure)
    visuals.block_owners({"empty": [" "] * 4}, 4)
    assert capsys.readouterr().out == "tokens in memory at the end: none\n"


def test_block_tables_say_what_is_shared(capsys):
    figure = visuals.block_tables({"a fork": [[0, 1], [0, 1]], "a token later": [[0, 2], [0, 1]]})
    assert [len(axes.patches) for axes in figure.axes] == [4, 4]
    assert capsys.readouterr().out == "a fork: 2 blocks, 2 shared; a token later: 3 blocks, 1 shared\n"
    assert_can_be_read(figure)


@pytest.mark.parametrize("blocks, crosses", [(75, 1), (100, 0)])
def test_a_cross_where_a_request_is_preempted(blocks, crosses, capsys):
    four = [TraceRequest(0.0, 200, 200)] * 4
    played = replay(ContinuousBatching(4, 1024), four, BlockPool(blocks), COST)
    figure = visuals.slots({"four": played})
    assert len(figure.axes[0].lines) == crosses == played.preemptions
    assert ("preempted" in [text.get_text() for text in figure.legends[0].get_texts()]) == bool(crosses)
    assert capsys.readouterr().out.startswith(f"four: {played.seconds:.2f} s")
    assert_can_be_read(figure)


def test_slots_that_are_kept_by_requests_that_have_ended():
    played = replay(StaticBatching(2, 64), [TraceRequest(0.0, 8, n) for n in (40, 5, 30, 30)], BlockPool(32), COST)
    figure = visuals.slots({"static": played})
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["prefill", "decode", "ended"]
    assert_can_be_read(figure)
