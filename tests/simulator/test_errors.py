"""What a learner reads when a program is wrong: who waits for whom, which calls differ, whose exception it was."""

import inspect
import os
import textwrap
import threading
import time
import traceback
from types import SimpleNamespace

import pytest
import torch
import torch.distributed as dist
from clock_by_hand import ClockByHand, ToldAtOnce
from torch.nn.parallel import DistributedDataParallel

import tinydist
from tinydist.simulator import scheduler, stuck
from tinydist.simulator.deadlock import DeadlockError
from tinydist.simulator.matching import MismatchError


@pytest.fixture(autouse=True)
def nothing_is_left_and_the_next_launch_works():
    yield
    assert [thread.name for thread in threading.enumerate() if thread.name.startswith("rank ")] == []
    assert tinydist.launch(sum_of_ranks, 4).results == [6.0] * 4


def sum_of_ranks():
    x = torch.tensor([float(dist.get_rank())])
    dist.all_reduce(x)
    return x.item()


def report(error, program, ranks, *args):
    with pytest.raises(error) as caught:
        tinydist.launch(program, ranks, *args)
    return str(caught.value)


def line(fn, text):
    """The line of ``fn`` that has ``text``, as reports show it."""
    lines, first = inspect.getsourcelines(fn)
    (index,) = [index for index, source in enumerate(lines) if text in source]
    path = os.path.relpath(__file__)
    path = __file__ if path.startswith("..") else path
    return f"{path}, line {first + index}, in {fn.__name__}: {lines[index].strip()}"


# Deadlocks.


def one_does_not_come():
    if dist.get_rank() != 1:
        dist.all_reduce(torch.ones(3))


def test_a_rank_that_does_not_come():
    assert report(DeadlockError, one_does_not_come, 4) == textwrap.dedent(f"""\
        no rank can run: 3 of 4 ranks wait for calls that can never complete
          ranks 0, 2-3 wait in all_reduce(float32[3], SUM), call 1 on the world of ranks 0-3
            missing: rank 1
            at {line(one_does_not_come, "all_reduce")}
          rank 1: returned""")


def both_receive_first():
    x, peer = torch.ones(2, 3), 1 - dist.get_rank()
    dist.recv(x, peer)
    dist.send(x, peer, tag=4)


def test_crossed_messages():
    assert report(DeadlockError, both_receive_first, 2) == textwrap.dedent(f"""\
        no rank can run: 2 of 2 ranks wait for calls that can never complete
          ranks 0-1 wait in recv(float32[2, 3]) on the world of ranks 0-1
            rank 0 from rank 1
            rank 1 from rank 0
            at {line(both_receive_first, "recv")}""")


def in_another_order():
    rank = dist.get_rank()
    first, second, third = dist.new_group([0, 1]), dist.new_group([1, 2]), dist.new_group([0, 2])
    x = torch.ones(())
    order = [(first, third), (second, first), (third, second)][rank]
    if rank == 0:
        dist.all_reduce(x, group=order[0])
    if rank == 1:
        dist.broadcast(x, 1, group=order[0])
    if rank == 2:
        dist.barrier(group=order[0])
    dist.barrier(group=order[1])


def test_groups_in_another_order():
    assert report(DeadlockError, in_another_order, 3) == textwrap.dedent(f"""\
        no rank can run: 3 of 3 ranks wait for calls that can never complete
          rank 0 waits in all_reduce(float32[], SUM), call 1 on the group of ranks 0-1
            missing: rank 1
            at {line(in_another_order, "dist.all_reduce")}
          rank 1 waits in broadcast(float32[], root 1), call 1 on the group of ranks 1-2
            missing: rank 2
            at {line(in_another_order, "dist.broadcast")}
          rank 2 waits in barrier(), call 1 on the group of ranks 0, 2
            missing: rank 0
            at {line(in_another_order, "dist.barrier(group=order[0])")}""")


def twins_in_another_order():
    groups = [dist.new_group([0, 1]), dist.new_group([0, 1])]
    if dist.get_rank() == 0:
        dist.all_reduce(torch.ones(2), group=groups[0])
    else:
        dist.all_reduce(torch.ones(2), group=groups[1])


def test_two_groups_of_the_same_ranks_in_another_order():
    text = report(DeadlockError, twins_in_another_order, 2)
    assert f"missing: rank 1\n    at {line(twins_in_another_order, 'groups[0])')}" in text
    assert f"missing: rank 0\n    at {line(twins_in_another_order, 'groups[1])')}" in text


def one_leaves_a_loop_early():
    for _ in range(5 - (dist.get_rank() == 2)):
        dist.barrier()


def test_a_rank_that_returns_early():
    text = report(DeadlockError, one_leaves_a_loop_early, 3)
    assert "ranks 0-1 wait in barrier(), call 5 on the world of ranks 0-2\n    missing: rank 2\n" in text
    assert text.endswith("rank 2: returned")


def key_that_nobody_sets():
    if dist.get_rank() == 1:
        dist.distributed_c10d._get_default_store().get("the answer")


def test_a_key_that_nobody_sets():
    assert report(DeadlockError, key_that_nobody_sets, 2) == textwrap.dedent(f"""\
        no rank can run: 1 of 2 ranks wait for calls that can never complete
          rank 1 waits in store.wait('the answer')
            no rank has set this key
            at {line(key_that_nobody_sets, "get(")}
          rank 0: returned""")


def send_that_nobody_receives():
    if dist.get_rank() == 0:
        dist.send(torch.ones(1), 1, tag=3)


def receive_that_nobody_sends():
    if dist.get_rank() == 0:
        dist.recv(torch.ones(1))


def waits_later():
    if dist.get_rank() == 0:
        work = dist.all_reduce(torch.ones(3), async_op=True)
        work.wait()


def polls():
    if dist.get_rank() == 0:
        work = dist.irecv(torch.zeros(1), 1)
        while not work.is_completed():
            pass


def in_a_function_of_torch():
    if dist.get_rank() == 0:
        dist.all_gather_object([None, None], "me")


WAITS = {  # program -> its call and whom it waits for, and the line where it waits
    send_that_nobody_receives: ("send(float32[1]) on the world of ranks 0-1\n    to rank 1, tag 3\n", "dist.send"),
    receive_that_nobody_sends: ("recv(float32[1]) on the world of ranks 0-1\n    from any rank\n", "dist.recv"),
    waits_later: (
        "all_reduce(float32[3], SUM), call 1 on the world of ranks 0-1\n    missing: rank 1\n",
        "work.wait()",
    ),
    polls: ("a polling loop", "is_completed"),
    in_a_function_of_torch: ("all_gather(int64[1]), call 1 on the world of ranks 0-1", "all_gather_object"),
}


@pytest.mark.parametrize("program", WAITS, ids=lambda program: program.__name__)
def test_a_report_says_the_call_whom_it_waits_for_and_the_line(program):
    call, place = WAITS[program]
    text = report(DeadlockError, program, 2)
    assert f"rank 0 waits in {call}" in text and f"at {line(program, place)}" in text


def test_a_deadlock_is_reported_at_once(monkeypatch):
    monkeypatch.setattr(scheduler, "queue", SimpleNamespace(SimpleQueue=ToldAtOnce))
    report(DeadlockError, one_does_not_come, 4)


def one_of_many_does_not_come():
    if dist.get_rank() != 500:
        dist.barrier()


def all_receive_from_the_next():
    dist.recv(torch.zeros(1), (dist.get_rank() + 1) % dist.get_world_size())


@pytest.mark.parametrize("program", [one_of_many_does_not_come, all_receive_from_the_next])
def test_reports_of_1024_ranks_are_short(program):
    text = report(DeadlockError, program, 1024)
    assert len(text.splitlines()) < 20
    assert len(text) < 2000


# Mismatches.


def other_shape():
    if dist.get_rank() == 2:
        dist.all_reduce(torch.ones(4))
    else:
        dist.all_reduce(torch.ones(3))


def test_another_shape():
    assert report(MismatchError, other_shape, 4) == textwrap.dedent(f"""\
        call 1 on the world of ranks 0-3: the shapes differ
          rank 2 calls all_reduce(float32[4], SUM)
            at {line(other_shape, "ones(4)")}
          rank 0 called all_reduce(float32[3], SUM)
            at {line(other_shape, "ones(3)")}""")


def other_message():
    if dist.get_rank() == 0:
        dist.send(torch.ones(4), 1)
    else:
        dist.recv(torch.ones(4, dtype=torch.float64), 0)


def test_a_message_of_another_dtype():
    assert report(MismatchError, other_message, 2) == textwrap.dedent(f"""\
        a message on the world of ranks 0-1: the dtypes differ
          rank 1 calls recv(float64[4])
            at {line(other_message, "recv")}
          rank 0 called send(float32[4])
            at {line(other_message, "send")}""")


def one(n, **how):
    return torch.ones(n, **how)


def makes_its_own_pair():
    pairs = [[0, 1], [2, 3]]
    dist.new_group(pairs[dist.get_rank() // 2])


def makes_pairs_in_another_order():
    pairs = [[0, 1], [2, 3]]
    for pair in pairs if dist.get_rank() < 2 else pairs[::-1]:
        dist.new_group(pair)


@pytest.mark.parametrize("program", [makes_its_own_pair, makes_pairs_in_another_order])
def test_groups_that_not_all_ranks_make_alike(program):
    """gloo hangs: both groups have the same name, and by it their members look for one another."""
    assert report(MismatchError, program, 4) == textwrap.dedent(f"""\
        call 1 of new_group, which all ranks of the world make in one order: the members differ
          rank 2 calls new_group(ranks 2-3)
            at {line(program, "new_group")}
          rank 0 called new_group(ranks 0-1)
            at {line(program, "new_group")}""")


def test_a_group_that_is_another_ones_second():
    def program():
        if dist.get_rank() in (0, 2):
            dist.barrier(dist.new_group([0, 2]))
        dist.new_group([0, 1])

    text = report(MismatchError, program, 4)
    assert "rank 1 calls new_group(ranks 0-1)" in text and "rank 0 called new_group(ranks 0, 2)" in text


def test_groups_that_need_no_other_rank_may_differ():
    def program():
        alone = dist.new_group([dist.get_rank()])
        pairs = [[0, 1], [2, 3]]
        pair = dist.new_group(pairs[dist.get_rank() // 2], use_local_synchronization=True)
        everyone = dist.new_group([0, 1, 2, 3])
        return [dist.get_world_size(group) for group in (alone, pair, everyone)]

    assert tinydist.launch(program, 4).results == [[1, 2, 4]] * 4


MISMATCHES = {  # what rank 1 calls, what the others call, what is said
    "shape": (
        lambda: dist.broadcast(one((2, 3)), 0),
        lambda: dist.broadcast(one((3, 2)), 0),
        ("the shapes differ", "broadcast(float32[2, 3], root 0)", "broadcast(float32[3, 2], root 0)"),
    ),
    "shape that gathers": (
        lambda: dist.all_gather([one(2)] * 3, one(2)),
        lambda: dist.all_gather([one(3)] * 3, one(3)),
        ("the shapes differ", "all_gather(float32[2])", "all_gather(float32[3])"),
    ),
    "dtype": (
        lambda: dist.all_reduce(one(2, dtype=torch.bfloat16)),
        lambda: dist.all_reduce(one(2)),
        ("the dtypes differ", "all_reduce(bfloat16[2], SUM)", "all_reduce(float32[2], SUM)"),
    ),
    "operation": (
        lambda: dist.barrier(),
        lambda: dist.all_reduce(one(2)),
        ("the operations differ", "barrier()", "all_reduce(float32[2], SUM)"),
    ),
    "root": (
        lambda: dist.broadcast(one(2), 1),
        lambda: dist.broadcast(one(2), 0),
        ("the roots differ", "broadcast(float32[2], root 1)", "broadcast(float32[2], root 0)"),
    ),
    "reduction": (
        lambda: dist.all_reduce(one(2), dist.ReduceOp.MAX),
        lambda: dist.all_reduce(one(2), dist.ReduceOp.MIN),
        ("the reductions differ", "all_reduce(float32[2], MAX)", "all_reduce(float32[2], MIN)"),
    ),
    "reduction of shards": (
        lambda: dist.reduce_scatter_single(one(2), one(6), dist.ReduceOp.AVG),
        lambda: dist.reduce_scatter_single(one(2), one(6)),
        ("the reductions differ", "reduce_scatter(float32[2], AVG)", "reduce_scatter(float32[2], SUM)"),
    ),
}


def differ(name):
    rank_1_calls, others_call, _ = MISMATCHES[name]
    rank_1_calls() if dist.get_rank() == 1 else others_call()


def lambdas_line(call):
    path = os.path.relpath(__file__)
    path = __file__ if path.startswith("..") else path
    return f"at {path}, line {call.__code__.co_firstlineno}, in <lambda>: lambda: dist."


@pytest.mark.parametrize("name", MISMATCHES)
def test_both_sides_of_a_mismatch_are_named(name):
    mine, theirs, (what, my_call, their_call) = MISMATCHES[name]
    text = report(MismatchError, differ, 3, name)
    assert text.startswith(f"call 1 on the world of ranks 0-2: {what}\n")
    assert f"  rank 1 calls {my_call}\n    {lambdas_line(mine)}" in text
    assert f"  rank 0 called {their_call}\n    {lambdas_line(theirs)}" in text


def uneven():
    rows = [[1, 2], [2, 1]][dist.get_rank()]
    expected = [[1, 2], [3, 1]][dist.get_rank()]  # rank 0 sends 2 rows to rank 1, which expects 3
    dist.all_to_all_single(torch.ones(sum(expected), 5), torch.ones(sum(rows), 5), expected, rows)


def test_splits_that_do_not_fit():
    text = report(MismatchError, uneven, 2)
    assert "rank 0 sends [2, 5] torch.float32 to rank 1, which expects [3, 5] torch.float32 from it" in text
    assert text.count(f"at {line(uneven, 'all_to_all_single')}") == 2


def longer_message():
    if dist.get_rank() == 0:
        dist.send(torch.ones(4), 1)
    else:
        dist.recv(torch.ones(2, 2), 0)


def test_a_message_of_another_shape():
    text = report(MismatchError, longer_message, 2)
    assert "the shapes differ" in text and "send(float32[4])" in text and "recv(float32[2, 2])" in text


def one_step_off():
    x = torch.ones(2)
    dist.all_reduce(x)
    if dist.get_rank() == 0:
        dist.all_reduce(x)
    dist.all_reduce(torch.ones(3))


def test_a_mismatch_says_which_call_it_is():
    assert report(MismatchError, one_step_off, 2).startswith("call 2 on the world of ranks 0-1: the shapes differ")


# A rank's own arguments.

ARGUMENTS = {
    "outputs of all_gather": (
        lambda: dist.all_gather([torch.zeros(2)] * 2, torch.zeros(2)),
        "all_gather on rank 0 of the world of ranks 0-2: output needs 3 tensors, one for each rank, got 2",
    ),
    "an output of all_gather": (
        lambda: dist.all_gather([torch.zeros(2), torch.zeros(3), torch.zeros(2)], torch.zeros(2)),
        "all_gather on rank 0 of the world of ranks 0-2: output[1] is [3] torch.float32, but",
    ),
    "inputs of reduce_scatter": (
        lambda: dist.reduce_scatter(torch.zeros(2), [torch.zeros(2)] * 4),
        "reduce_scatter on rank 0 of the world of ranks 0-2: input needs 3 tensors, one for each rank, got 4",
    ),
    "inputs of scatter": (
        lambda: dist.scatter(torch.zeros(2), [torch.zeros(2)] * 2 if dist.get_rank() == 0 else None),
        "scatter on rank 0 of the world of ranks 0-2: scatter_list needs 3 tensors, one for each rank, got 2",
    ),
    "outputs of gather": (
        lambda: dist.gather(torch.zeros(2), [torch.zeros(2)] * 2 if dist.get_rank() == 0 else None),
        "gather on rank 0 of the world of ranks 0-2: gather_list needs 3 tensors, one for each rank, got 2",
    ),
    "lists of all_to_all": (
        lambda: dist.all_to_all([torch.zeros(2)] * 3, [torch.zeros(2)] * 2),
        "all_to_all on rank 0 of the world of ranks 0-2: input needs 3 tensors, one for each rank, got 2",
    ),
    "output of all_gather_single": (
        lambda: dist.all_gather_single(torch.zeros(5), torch.zeros(2)),
        "all_gather on rank 0 of the world of ranks 0-2: output needs 3 ranks x 2 = 6 elements of torch.float32, got 5",
    ),
    "input of reduce_scatter_single": (
        lambda: dist.reduce_scatter_single(torch.zeros(2), torch.zeros(7)),
        "input needs 3 ranks x 2 = 6 elements of torch.float32, got 7",
    ),
    "rows of all_to_all_single": (
        lambda: dist.all_to_all_single(torch.zeros(6), torch.zeros(7)),
        "all_to_all on rank 0 of the world of ranks 0-2: 7 rows of input",
    ),
    "splits of all_to_all_single": (
        lambda: dist.all_to_all_single(torch.zeros(6), torch.zeros(6), [2, 2, 2], [2, 2, 3]),
        "[2, 2, 3]",
    ),
    "number of splits": (
        lambda: dist.all_to_all_single(torch.zeros(6), torch.zeros(6), [3, 3], [2, 2, 2]),
        "[3, 3]",
    ),
}


@pytest.mark.parametrize("name", ARGUMENTS)
def test_own_arguments(name):
    call, message = ARGUMENTS[name]
    with pytest.raises(ValueError) as caught:
        tinydist.launch(lambda: call(), 3)
    assert message in str(caught.value)
    assert caught.value.__notes__ == ["on rank 0 of 3"]


def test_a_reduction_that_simulated_ranks_do_not_have():
    def program():
        dist.all_reduce(torch.ones(2), dist._make_nccl_premul_sum(2.0))

    assert "PREMUL_SUM" in report(NotImplementedError, program, 2)


def test_bits_of_floats():
    with pytest.raises(RuntimeError, match="bitwise_or"):
        tinydist.launch(lambda: dist.all_reduce(torch.ones(2), dist.ReduceOp.BOR), 2)


@pytest.mark.parametrize("peer", [-1, 3])
def test_a_peer_that_does_not_exist(peer):
    def program():
        if dist.get_rank() == 0:
            dist.send(torch.ones(1), peer)

    assert str(peer) in report(ValueError, program, 3)


def test_a_group_of_another_rank():
    kept = []

    def program():
        kept.append(dist.new_group([0, 1]))
        dist.barrier()
        dist.barrier(group=kept[0])

    text = report(RuntimeError, program, 2)
    assert "rank 1 uses a process group of rank 0: each rank has its own" in text


# Exceptions.


class OwnError(Exception):
    def __init__(self, rank, why):
        super().__init__(rank, why)
        self.why = why


def fails():
    dist.barrier()
    if dist.get_rank() == 2:
        raise_it()
    dist.barrier()


def raise_it():
    raise OwnError(2, "because")


def names_in_traceback(error):
    return [frame.name for frame in traceback.extract_tb(error.__traceback__)]


def test_an_exception_of_one_rank_is_raised_as_it_is():
    with pytest.raises(OwnError) as caught:
        tinydist.launch(fails, 4)
    assert caught.value.why == "because"
    assert caught.value.__notes__ == ["on rank 2 of 4"]


def test_its_traceback_is_that_of_the_program():
    with pytest.raises(OwnError) as caught:
        tinydist.launch(fails, 4)
    assert names_in_traceback(caught.value)[-2:] == ["fails", "raise_it"]
    assert set(names_in_traceback(caught.value)[:-2]) <= {"test_its_traceback_is_that_of_the_program", "launch"}


def test_its_cause_is_kept():
    def program():
        try:
            {}["missing"]
        except KeyError as cause:
            raise ValueError("consequence") from cause

    with pytest.raises(ValueError) as caught:
        tinydist.launch(program, 2)
    assert isinstance(caught.value.__cause__, KeyError)


def test_an_exception_before_anybody_communicates():
    def program():
        raise ValueError(dist.get_rank())

    with pytest.raises(ValueError, match="0"):
        tinydist.launch(program, 8)


def test_an_exception_in_a_callback_of_backward():
    def program():
        w = torch.ones(2, requires_grad=True)
        if dist.get_rank() == 1:
            w.register_post_accumulate_grad_hook(lambda _: raise_it())
        w.sum().backward()
        dist.barrier()

    with pytest.raises(OwnError) as caught:
        tinydist.launch(program, 2)
    assert caught.value.__notes__ == ["on rank 1 of 2"]
    names = names_in_traceback(caught.value)
    assert "program" in names and names[-1] == "raise_it"


def reduces_in_backward():
    w = torch.ones(2, requires_grad=True)
    n = 2 + (dist.get_rank() == 1)
    w.register_post_accumulate_grad_hook(lambda _: dist.all_reduce(torch.ones(n)))
    w.sum().backward()


def test_a_mismatch_in_a_callback_of_backward():
    text = report(MismatchError, reduces_in_backward, 2)
    assert "the shapes differ" in text and "register_post_accumulate_grad_hook" in text


def waits_in_backward():
    w = torch.ones(2, requires_grad=True)
    if dist.get_rank() == 0:
        w.register_post_accumulate_grad_hook(lambda _: dist.all_reduce(torch.ones(2)))
    w.sum().backward()


def test_a_deadlock_in_a_callback_of_backward():
    text = report(DeadlockError, waits_in_backward, 2)
    assert "rank 0 waits in all_reduce(float32[2], SUM)" in text and "rank 1: returned" in text


def trains(spoil):
    torch.manual_seed(0)
    model = torch.nn.Linear(3, 2)
    model = spoil(model) if dist.get_rank() == 1 else model
    model = DistributedDataParallel(model, init_sync=False)
    loss = model(torch.ones(4, 3, dtype=model.module.weight.dtype)).sum()
    if getattr(model.module, "skips_backward", False):
        return
    loss.backward()


def test_a_mismatch_in_ddp():
    text = report(MismatchError, trains, 3, lambda model: model.double())
    assert "the dtypes differ" in text
    assert f"at {line(trains, 'backward()')}" in text


def test_a_rank_that_skips_backward_in_ddp():
    def spoil(model):
        model.skips_backward = True
        return model

    text = report(DeadlockError, trains, 3, spoil)
    assert "missing: rank 1" in text
    assert f"at {line(trains, 'backward()')}" in text


def test_an_exception_in_ddp():
    def spoil(model):
        model.weight.register_hook(lambda _: raise_it())
        return model

    with pytest.raises(OwnError) as caught:
        tinydist.launch(trains, 3, spoil)
    assert caught.value.__notes__ == ["on rank 1 of 3"]


def test_a_thread_that_a_rank_starts_cannot_communicate():
    def program():
        errors = []

        def help_out():
            try:
                dist.all_reduce(torch.ones(1))
            except Exception as error:
                errors.append(error)

        helper = threading.Thread(target=help_out, name="helper")
        helper.start()
        helper.join()
        raise errors[0]

    assert "'helper' is not a rank" in report(RuntimeError, program, 2)


def left_behind():
    """What the ranks of a run that has ended had: a group, and a work that is done."""

    def program():
        work = dist.all_reduce(torch.ones(1), async_op=True)
        work.wait()
        return dist.group.WORLD, work, dist.irecv(torch.zeros(1), 1 - dist.get_rank())

    with pytest.warns(RuntimeWarning, match="ranks 0-1 issued recv"):
        return tinydist.launch(program, 2).results[0]


@pytest.mark.parametrize("later", [lambda use: use(), lambda use: tinydist.launch(use, 2)], ids=["kernel", "launch"])
def test_what_belongs_to_a_run_cannot_be_used_after_it(later):
    group, done, pending = left_behind()
    uses = [
        lambda: dist.all_reduce(torch.ones(1), group=group),
        lambda: dist.barrier(group),
        lambda: group.allreduce([torch.ones(1)]),
        done.wait,
        pending.wait,
        pending.is_completed,
    ]
    for use in uses:
        with pytest.raises(RuntimeError, match="the run of these ranks has ended: their process groups and Work"):
            later(use)
    with pytest.raises(ValueError, match="<simulated group of ranks 0-1, whose run has ended> is not registered"):
        later(lambda: dist.broadcast(torch.ones(1), 0, group=group))


def test_a_rank_that_blocks_the_others_is_reported(monkeypatch):
    clock = ClockByHand()
    monkeypatch.setattr(stuck, "time", clock)

    def program():
        clock.go_on()
        while dist.get_rank() == 0:
            time.sleep(0.05)  # never lets rank 1 run

    with pytest.raises(RuntimeError, match=r"rank 0 has held the run lock for 0\.5 s") as caught:
        tinydist.launch(program, 2, timeout=0.5)
    assert "never lets rank 1 run" in str(caught.value)


# What launch is given.


@pytest.mark.parametrize(
    "arguments, message",
    [
        ({"backend": "mpi"}, "launch: backend must be one of simulated, gloo, nccl, got 'mpi'"),
        ({"schedule": "lifo"}, "launch: schedule must be one of fifo, shuffle, got 'lifo'"),
        ({"ranks": 0}, "launch: ranks must be an integer >= 1, got 0"),
        ({"ranks": -1}, "launch: ranks must be an integer >= 1, got -1"),
        ({"ranks": 2.5}, "launch: ranks must be an integer >= 1, got 2.5"),
        ({"ranks": "4"}, "launch: ranks must be an integer >= 1, got '4'"),
    ],
)
def test_arguments_of_launch(arguments, message):
    with pytest.raises(ValueError) as caught:
        tinydist.launch(sum_of_ranks, **arguments)
    assert str(caught.value) == message


def test_a_rank_cannot_launch_ranks():
    def program():
        tinydist.launch(sum_of_ranks, 2)

    assert "nested launch() is not supported" in report(RuntimeError, program, 2)


def test_a_program_that_makes_its_own_group():
    def program(backwards):
        rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
        dist.init_process_group("gloo", rank=size - 1 - rank if backwards else rank, world_size=size)
        return sum_of_ranks(), dist.get_backend()

    assert tinydist.launch(program, 3, False, init=False).results == [(3.0, "gloo")] * 3
    with pytest.raises(RuntimeError, match="rank 0 uses a process group of rank 2"):
        tinydist.launch(program, 3, True, init=False)


@pytest.mark.filterwarnings("ignore:.*NCCL support is not compiled")
def test_errors_of_a_program_that_asks_for_nccl():
    def program():
        dist.init_process_group("nccl")
        other_shape()

    with pytest.raises(MismatchError, match="the shapes differ"):
        tinydist.launch(program, 4, init=False)


def test_a_program_that_makes_its_own_group_of_another_size():
    def program():
        dist.init_process_group("gloo", rank=int(os.environ["RANK"]), world_size=3)

    with pytest.raises(ValueError, match="world_size is 3, but 2 ranks were launched"):
        tinydist.launch(program, 2, init=False)


def test_communicating_without_a_group():
    with pytest.raises(ValueError, match="Default process group has not been initialized"):
        tinydist.launch(lambda: dist.barrier(), 2, init=False)
