"""What ranks began and nobody completed is told at the end; what was completed is not, though nobody waited for it."""

import warnings

import pytest
import torch
import torch.distributed as dist

import tinydist


def told(program, ranks):
    with pytest.warns(RuntimeWarning, match="^launch: ") as caught:
        tinydist.launch(program, ranks)
    (warning,) = caught
    assert warning.filename == __file__  # the line of the launch
    first, *lines = str(warning.message).splitlines()
    assert first == "launch: all ranks have ended, but these calls were never completed:"
    return lines


def test_a_collective_that_not_all_have_joined():
    def program():
        if dist.get_rank() != 1:
            dist.all_reduce(torch.ones(2), async_op=True)

    call, missing, line = told(program, 4)
    assert call == "  ranks 0, 2-3 issued all_reduce(float32[2], SUM), call 1 on the world of ranks 0-3"
    assert missing == "    missing: rank 1"
    assert line.endswith("in program: dist.all_reduce(torch.ones(2), async_op=True)")


def test_messages_that_have_one_side_only():
    def program():
        if dist.get_rank() == 0:
            dist.isend(torch.ones(1), 1, tag=3)
        else:
            dist.irecv(torch.ones(2), 0)

    sent, to, _, received, source, _ = told(program, 2)
    assert (sent, to) == ("  rank 0 issued send(float32[1]) on the world of ranks 0-1", "    to rank 1, tag 3")
    assert (received, source) == ("  rank 1 issued recv(float32[2]) on the world of ranks 0-1", "    from rank 0")


def test_a_call_in_a_loop_is_told_some_times():
    def program():
        for _ in range(20):
            if dist.get_rank() == 0:
                dist.barrier(async_op=True)

    lines = told(program, 2)
    assert len(lines) == 3 * 8 + 1 and lines[-1] == "  and 12 more"


def test_what_all_have_joined_is_not_told_though_nobody_waits():
    def program():
        x = torch.ones(1)
        dist.all_reduce(x, async_op=True)
        dist.isend(x, 1) if dist.get_rank() == 0 else dist.irecv(x, 0)

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        tinydist.launch(program, 2)


def test_a_failure_is_told_alone():
    def program():
        dist.all_reduce(torch.ones(1), async_op=True)
        raise ValueError

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(ValueError):
            tinydist.launch(program, 2)


def test_a_group_that_only_its_members_make():
    """It works, on real ranks too. But the next group that all make has another name on each side."""

    def program():
        if dist.get_rank() < 2:
            dist.new_group([0, 1])

    call, missing, line = told(program, 4)
    words = "call 1 of new_group, which all ranks of the world make in one order"
    assert (call, missing) == (f"  ranks 0-1 issued new_group(ranks 0-1), {words}", "    missing: ranks 2-3")
    assert line.endswith("in program: dist.new_group([0, 1])")
