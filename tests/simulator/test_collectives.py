"""Every collective and message of torch.distributed, against what it means for a plain list of tensors."""

import functools
import operator
import sys
import threading
from typing import NamedTuple

import cloudpickle
import pytest
import torch
import torch.distributed as dist
import torch.distributed.nn.functional as with_gradients
from hypothesis import given
from hypothesis import strategies as st
from torch.distributed.distributed_c10d import _coalescing_manager
from torch_names import funcol

import tinydist

WORLDS = (1, 2, 3, 4, 8)
BOTH_WAYS = pytest.mark.parametrize("asynchronous", [False, True], ids=["sync", "async"])
FLOATS = (torch.float32, torch.float64, torch.float16, torch.bfloat16)
INTEGERS = (torch.int8, torch.uint8, torch.int16, torch.int32, torch.int64)
COMPLEX = (torch.complex64, torch.complex128)
DTYPES = (*FLOATS, *INTEGERS, torch.bool, *COMPLEX)
REDUCES = {
    "SUM": DTYPES,
    "AVG": (*FLOATS, *INTEGERS, *COMPLEX),
    "PRODUCT": (*FLOATS, *INTEGERS, torch.bool),
    "MIN": (*FLOATS, *INTEGERS, torch.bool),
    "MAX": (*FLOATS, *INTEGERS, torch.bool),
    "BAND": (*INTEGERS, torch.bool),
    "BOR": (*INTEGERS, torch.bool),
    "BXOR": (*INTEGERS, torch.bool),
}


@pytest.fixture(autouse=True)
def no_thread_is_left():
    yield
    assert [thread.name for thread in threading.enumerate() if thread.name.startswith("rank ")] == []


# What collectives mean. `xs` holds what each rank of the group brings.


def reduced(xs, reduction):
    if reduction == "AVG":
        total = functools.reduce(operator.add, xs)
        return total / len(xs) if total.is_floating_point() or total.is_complex() else trunc_div(total, len(xs))
    stacked = torch.stack(xs)
    match reduction:
        case "MIN":
            return stacked.amin(0)
        case "MAX":
            return stacked.amax(0)
    fold = {"SUM": operator.add, "PRODUCT": operator.mul, "BAND": operator.and_, "BOR": operator.or_}
    return functools.reduce(fold.get(reduction, operator.xor), xs)


def trunc_div(total, number):
    return torch.div(total, number, rounding_mode="trunc")


# A case, and tensors for it.


class Case(NamedTuple):
    world: int
    members: tuple  # the ranks of the group
    root: int  # a rank of the group, counted within it
    by_group: bool  # is the root passed as a group rank?
    reduction: str
    dtype: torch.dtype
    shape: tuple
    layout: str
    splits: tuple  # [source][destination] rows, of an uneven all_to_all
    seed: int

    @property
    def size(self):
        return len(self.members)

    def tensors(self, number):
        """So many tensors for each rank of the group, of whole numbers that any order sums alike."""
        generator = torch.Generator().manual_seed(self.seed)
        low = 0 if self.dtype in (torch.uint8, torch.bool) else -2
        shape = (self.size, number, *self.shape)
        return torch.randint(low, 3, shape, generator=generator).to(self.dtype)

    def laid_out(self, tensor):
        """The same values, in memory as the case says."""
        if self.layout == "transposed":
            return tensor.mT.contiguous().mT if tensor.ndim > 1 else tensor.clone()
        if self.layout == "strided":
            return torch.stack([tensor, tensor], dim=-1)[..., 0]
        return tensor.clone()

    def joined(self, tensors):
        """Pieces [rank, ...] as one tensor, along its first dim."""
        return tensors.flatten(0, 1).clone() if self.shape else tensors.clone()

    def blank(self):
        return self.laid_out(torch.zeros(self.shape, dtype=self.dtype))


@st.composite
def cases(draw):
    world = draw(st.sampled_from(WORLDS))
    members = tuple(range(world))
    if draw(st.booleans()):
        members = tuple(sorted(draw(st.sets(st.sampled_from(members), min_size=1))))
    reduction = draw(st.sampled_from(sorted(REDUCES)))
    size = len(members)
    return Case(
        world=world,
        members=members,
        root=draw(st.integers(0, size - 1)),
        by_group=draw(st.booleans()),
        reduction=reduction,
        dtype=draw(st.sampled_from(REDUCES[reduction])),
        shape=tuple(draw(st.lists(st.integers(0, 3), max_size=3))),
        layout=draw(st.sampled_from(["contiguous", "transposed", "strided"])),
        splits=tuple(tuple(draw(st.integers(0, 3)) for _ in range(size)) for _ in range(size)),
        seed=draw(st.integers(0, 2**31)),
    )


# Each collective: what a rank does in the group, given its own tensors; and what each must have then.

OPERATIONS = {}  # name -> (program, definition, tensors of each rank)


def operation(definition, number=lambda case: 1):
    def keep(program):
        OPERATIONS[program.__name__] = program, definition, number
        return program

    return keep


def each(case):
    return case.size


def root_of(case, name):
    """The root as torch.distributed takes it: src or dst, or counted within the group."""
    return {f"group_{name}": case.root} if case.by_group else {name: case.members[case.root]}


def at_root(case, me, value):
    return value if me == case.root else None


def op_of(case):
    return getattr(dist.ReduceOp, case.reduction)


@operation(lambda case, xs: [reduced(list(xs[:, 0]), case.reduction)] * case.size)
def all_reduce(case, me, mine, how, wait):
    x = case.laid_out(mine[0])
    wait(dist.all_reduce(x, op_of(case), **how))
    return x


@operation(lambda case, xs: [at_root(case, me, reduced(list(xs[:, 0]), case.reduction)) for me in range(case.size)])
def reduce(case, me, mine, how, wait):
    x = case.laid_out(mine[0])
    wait(dist.reduce(x, op=op_of(case), **root_of(case, "dst"), **how))
    return at_root(case, me, x)


@operation(lambda case, xs: [xs[case.root, 0]] * case.size)
def broadcast(case, me, mine, how, wait):
    x = case.laid_out(mine[0])
    wait(dist.broadcast(x, **root_of(case, "src"), **how))
    return x


@operation(lambda case, xs: [xs[:, 0]] * case.size)
def all_gather(case, me, mine, how, wait):
    outputs = [case.blank() for _ in range(case.size)]
    wait(dist.all_gather(outputs, case.laid_out(mine[0]), **how))
    return torch.stack(outputs)


@operation(lambda case, xs: [xs[:, 0]] * case.size)
def all_gather_single(case, me, mine, how, wait):
    output = case.joined(torch.zeros(case.size, *case.shape, dtype=case.dtype))
    wait(dist.all_gather_single(output, case.laid_out(mine[0]), **how))
    return output.view(case.size, *case.shape)


@operation(lambda case, xs: [at_root(case, me, xs[:, 0]) for me in range(case.size)])
def gather(case, me, mine, how, wait):
    outputs = at_root(case, me, [case.blank() for _ in range(case.size)])
    wait(dist.gather(case.laid_out(mine[0]), outputs, **root_of(case, "dst"), **how))
    return outputs and torch.stack(outputs)


@operation(lambda case, xs: list(xs[case.root]), each)
def scatter(case, me, mine, how, wait):
    output = case.blank()
    inputs = at_root(case, me, [case.laid_out(x) for x in mine])
    wait(dist.scatter(output, inputs, **root_of(case, "src"), **how))
    return output


def sum_of_columns(case, xs):
    return [reduced(list(column), case.reduction) for column in xs.transpose(0, 1)]


@operation(sum_of_columns, each)
def reduce_scatter(case, me, mine, how, wait):
    output = case.blank()
    wait(dist.reduce_scatter(output, [case.laid_out(x) for x in mine], op_of(case), **how))
    return output


@operation(sum_of_columns, each)
def reduce_scatter_single(case, me, mine, how, wait):
    output = torch.zeros(case.shape, dtype=case.dtype)
    wait(dist.reduce_scatter_single(output, case.joined(mine), op_of(case), **how))
    return output


@operation(lambda case, xs: list(xs.transpose(0, 1)), each)
def all_to_all(case, me, mine, how, wait):
    outputs = [case.blank() for _ in range(case.size)]
    wait(dist.all_to_all(outputs, [case.laid_out(x) for x in mine], **how))
    return torch.stack(outputs)


@operation(lambda case, xs: list(xs.transpose(0, 1)), each)
def all_to_all_single(case, me, mine, how, wait):
    output = torch.zeros_like(mine)
    wait(dist.all_to_all_single(output, mine.clone(), **how))
    return output


def rows(case, source, destination):
    """What one has for another in an uneven all_to_all."""
    return torch.full((case.splits[source][destination], 2), source * 10 + destination).to(case.dtype)


def rows_for(case, xs):
    return [torch.cat([rows(case, source, me) for source in range(case.size)]) for me in range(case.size)]


@operation(rows_for)
def all_to_all_uneven(case, me, mine, how, wait):
    outputs = [torch.zeros(line[me], 2, dtype=case.dtype) for line in case.splits]
    wait(dist.all_to_all(outputs, [rows(case, me, peer) for peer in range(case.size)], **how))
    return torch.cat(outputs)


@operation(rows_for)
def all_to_all_single_uneven(case, me, mine, how, wait):
    sent, received = list(case.splits[me]), [line[me] for line in case.splits]
    data = torch.cat([rows(case, me, peer) for peer in range(case.size)])
    output = torch.zeros(sum(received), 2, dtype=case.dtype)
    wait(dist.all_to_all_single(output, data, received, sent, **how))
    return output


# They meet.


def take_part(name, case, asynchronous, xs):
    """What this rank has in the end; None outside the group."""
    is_world = len(case.members) == case.world
    group = None if is_world else dist.new_group(case.members)
    if dist.get_rank() not in case.members:
        return None
    me = dist.get_rank(group)
    assert case.members[me] == dist.get_rank()

    def wait(work):
        if asynchronous:
            work.wait()
            assert work.is_completed()
        else:
            assert work is None

    return OPERATIONS[name][0](case, me, xs[me], {"group": group, "async_op": asynchronous}, wait)


def expected(name, case):
    _, definition, number = OPERATIONS[name]
    return dict(zip(case.members, definition(case, case.tensors(number(case)))))


def assert_same(actual, wanted):
    if wanted is None:
        assert actual is None
    else:
        torch.testing.assert_close(actual, wanted, rtol=0, atol=0)


@pytest.mark.parametrize("name", OPERATIONS)
@given(case=cases(), asynchronous=st.booleans())
def test_collective(name, asynchronous, case):
    xs = case.tensors(OPERATIONS[name][2](case))
    results = tinydist.launch(take_part, case.world, name, case, asynchronous, xs).results
    wanted = expected(name, case)
    for rank, result in enumerate(results):
        assert_same(result, wanted.get(rank))


def test_sums_run_in_the_order_of_ranks_whoever_comes_last():
    """So that all ranks, and all ways to cut a sum in pieces, have the same bits."""
    xs = torch.randn(5, 5, 7, generator=torch.Generator().manual_seed(0)) * 10.0 ** torch.arange(5)[:, None, None]
    wanted = xs[0] + xs[1] + xs[2] + xs[3] + xs[4]
    assert not torch.equal(wanted, xs[4] + xs[3] + xs[2] + xs[1] + xs[0])

    def program():
        mine = xs[dist.get_rank()].clone()
        shard = torch.empty(7)
        dist.reduce_scatter_single(shard, mine)
        dist.all_reduce(mine)
        return mine, shard

    for seed in range(5):
        for rank, (whole, shard) in enumerate(tinydist.launch(program, 5, seed=seed, schedule="shuffle").results):
            assert torch.equal(whole, wanted)
            assert torch.equal(shard, wanted[rank])


def test_reduce_leaves_the_tensors_of_the_others_alone():
    def program():
        x = torch.tensor([1.0 + dist.get_rank()])
        dist.reduce(x, 1)
        return x.item()

    assert tinydist.launch(program, 3).results == [1.0, 6.0, 3.0]


def test_a_shard_may_be_part_of_the_whole():
    """As FSDP does it: no second buffer."""

    def program():
        rank = dist.get_rank()
        whole = torch.full((6,), float(rank))
        shard = whole[2 * rank : 2 * rank + 2]
        dist.all_gather_single(whole, shard)
        gathered = whole.tolist()
        dist.reduce_scatter_single(shard, whole)
        return gathered, shard.tolist()

    gathered = [0.0, 0.0, 1.0, 1.0, 2.0, 2.0]
    assert tinydist.launch(program, 3).results == [(gathered, [3.0 * rank] * 2) for rank in range(3)]


def test_one_tensor_may_be_in_several_places_of_a_list():
    def program():
        x, outputs = torch.ones(2), [torch.zeros(2) for _ in range(2)]
        dist.all_to_all(outputs, [x, x])
        return [output.tolist() for output in outputs]

    assert tinydist.launch(program, 2).results == [[[1.0, 1.0]] * 2] * 2


def test_all_gather_stacks_or_concatenates():
    def program():
        stacked, concatenated = torch.zeros(2, 1, 3), torch.zeros(2, 3)
        dist.all_gather_single(stacked, torch.full((1, 3), float(dist.get_rank())))
        dist.all_gather_single(concatenated, torch.full((1, 3), float(dist.get_rank())))
        return stacked[:, 0, 0].tolist(), concatenated[:, 0].tolist()

    assert tinydist.launch(program, 2).results == [([0.0, 1.0], [0.0, 1.0])] * 2


@pytest.mark.filterwarnings("ignore::FutureWarning")
def test_the_older_names():
    def program():
        rank = float(dist.get_rank())
        whole, shard = torch.zeros(2), torch.zeros(1)
        dist.all_gather_into_tensor(whole, torch.tensor([rank]))
        dist.reduce_scatter_tensor(shard, torch.tensor([rank, 10 * rank]))
        return whole.tolist(), shard.item()

    assert tinydist.launch(program, 2).results == [([0.0, 1.0], 1.0), ([0.0, 1.0], 10.0)]


# Waiting.


def test_only_a_wait_blocks_and_only_the_last_arrival_completes():
    def program():
        x = torch.ones(2)
        work = dist.all_reduce(x, async_op=True)
        before = x.tolist()
        work.wait()
        return before, x.tolist(), work.is_completed(), work.is_success()

    done = ([1.0, 1.0], [2.0, 2.0], True, True)
    assert tinydist.launch(program, 2).results == [done, ([2.0, 2.0], *done[1:])]


def test_works_are_waited_for_in_any_order():
    def program():
        xs = [torch.full((2,), float(number)) for number in range(4)]
        works = [dist.all_reduce(x, async_op=True) for x in xs]
        order = [0, 1, 2, 3] if dist.get_rank() else [3, 1, 2, 0]
        for number in order:
            works[number].wait()
        return [x[0].item() for x in xs]

    assert tinydist.launch(program, 3).results == [[0.0, 3.0, 6.0, 9.0]] * 3


def test_is_completed_lets_the_others_run():
    def program():
        x = torch.ones(1)
        work = dist.all_reduce(x, async_op=True)
        while not work.is_completed():
            pass
        return x.item()

    assert tinydist.launch(program, 4).results == [4.0] * 4


def test_futures_of_works():
    def program():
        future = dist.all_reduce(torch.ones(2), async_op=True).get_future()
        half = future.then(lambda done: done.value()[0] / 2)
        return half.wait().tolist(), future.value()[0].tolist()

    assert tinydist.launch(program, 4).results == [([2.0, 2.0], [4.0, 4.0])] * 4


def test_no_rank_passes_a_barrier_before_all_are_there():
    log = []

    def program():
        log.append("before")
        dist.barrier()
        log.append("after")
        dist.barrier(async_op=True).wait()

    tinydist.launch(program, 4)
    assert log == ["before"] * 4 + ["after"] * 4


def test_monitored_barrier():
    def program():
        dist.init_process_group("gloo")
        dist.monitored_barrier()
        return dist.get_backend()

    assert tinydist.launch(program, 3, init=False).results == ["gloo"] * 3


# Several tensors in one call.


@BOTH_WAYS
def test_coalesced_calls(asynchronous):
    def program():
        rank, device = float(dist.get_rank()), torch.device("cpu")
        xs = [torch.full((n,), rank) for n in (1, 2)]
        wholes = [torch.zeros(2 * n) for n in (1, 2)]
        shards = [torch.zeros(n) for n in (1, 2)]
        for call in (
            lambda: [dist.all_gather_single(whole, x) for whole, x in zip(wholes, xs)],
            lambda: [dist.reduce_scatter_single(shard, whole) for shard, whole in zip(shards, wholes)],
            lambda: [dist.all_reduce(x) for x in xs],
        ):
            with _coalescing_manager(device=device, async_ops=asynchronous) as works:
                call()
            if asynchronous:
                works.wait()
        return [[t.tolist() for t in ts] for ts in (xs, wholes, shards)]

    for rank, result in enumerate(tinydist.launch(program, 2).results):
        own = 2.0 * rank
        assert result == [[[1.0], [1.0] * 2], [[0.0, 1.0], [0.0, 0.0, 1.0, 1.0]], [[own], [own, own]]]


@BOTH_WAYS
@pytest.mark.filterwarnings("ignore::FutureWarning")
def test_coalesced_functions(asynchronous):
    def program():
        rank = float(dist.get_rank())
        xs = [torch.full((n,), rank) for n in (1, 2)]
        outputs = [[torch.zeros(n) for n in (1, 2)] for _ in range(2)]
        for work in (
            lambda: dist.all_gather_coalesced(outputs, xs, async_op=asynchronous),
            lambda: dist.all_reduce_coalesced(xs, async_op=asynchronous),
        ):
            handle = work()
            if asynchronous:
                handle.wait()
        return [x.tolist() for x in xs], [[t.tolist() for t in ts] for ts in outputs]

    gathered = [[[0.0], [0.0, 0.0]], [[1.0], [1.0, 1.0]]]
    assert tinydist.launch(program, 2).results == [([[1.0], [1.0, 1.0]], gathered)] * 2


# Objects.


@pytest.mark.parametrize("size", WORLDS)
def test_objects(size):
    def program():
        rank = dist.get_rank()
        mine, root = {"rank": rank, "text": "é" * rank}, size - 1
        gathered, at_root, shared, own = [None] * size, [None] * size, [mine], [None]
        dist.all_gather_object(gathered, mine)
        dist.gather_object(mine, at_root if rank == root else None, dst=root)
        dist.broadcast_object_list(shared, src=root)
        dist.scatter_object_list(own, gathered if rank == root else None, src=root)
        return gathered, at_root if rank == root else None, shared[0], own[0]

    objects = [{"rank": rank, "text": "é" * rank} for rank in range(size)]
    for rank, result in enumerate(tinydist.launch(program, size).results):
        assert result == (objects, objects if rank == size - 1 else None, objects[-1], objects[rank])


def test_objects_in_messages():
    def program():
        if dist.get_rank() == 0:
            dist.send_object_list(["a", {"b": 2}], dst=1)
        else:
            received = [None, None]
            dist.recv_object_list(received, src=0)
            return received

    assert tinydist.launch(program, 2).results == [None, ["a", {"b": 2}]]


# Groups.


def test_ranks_of_a_group():
    def program():
        group = dist.new_group([1, 3])
        if dist.get_rank() not in (1, 3):
            return dist.get_rank(group), None, None
        return dist.get_rank(group), dist.get_world_size(group), dist.get_process_group_ranks(group)

    outside = (-1, None, None)
    assert tinydist.launch(program, 4).results == [outside, (0, 2, [1, 3]), outside, (1, 2, [1, 3])]


def test_calls_on_different_groups_do_not_meet():
    def program():
        rank = dist.get_rank()
        twins = [dist.new_group([0, 1]), dist.new_group([0, 1])]  # the same ranks, and still two groups
        xs = [torch.tensor([10.0 * rank + number]) for number in range(2)]
        works = [dist.all_reduce(xs[n], group=twins[n], async_op=True) for n in ((0, 1), (1, 0))[rank]]
        for work in works:
            work.wait()
        return [x.item() for x in xs]

    assert tinydist.launch(program, 2).results == [[10.0, 12.0]] * 2


def test_subgroups_by_enumeration_and_by_size():
    def program():
        mine = torch.tensor([float(dist.get_rank())])
        pair, _ = dist.new_subgroups(group_size=2)
        dist.all_reduce(mine, group=pair)
        stripe, _ = dist.new_subgroups_by_enumeration([[0, 2], [1, 3]])
        dist.all_reduce(mine, group=stripe)
        return mine.item()

    assert tinydist.launch(program, 4).results == [6.0] * 4


def test_a_group_that_only_its_members_make():
    def program():
        if dist.get_rank() in (0, 2):
            group = dist.new_group([0, 2], use_local_synchronization=True)
            x = torch.tensor([float(dist.get_rank())])
            dist.all_reduce(x, group=group)
            return x.item()

    assert tinydist.launch(program, 3).results == [2.0, None, 2.0]


def test_a_group_that_was_destroyed_and_made_again():
    def program():
        sums = []
        for _ in range(3):
            group = dist.new_group([0, 1])
            x = torch.ones(1)
            dist.all_reduce(x, group=group)
            dist.destroy_process_group(group)
            sums.append(x.item())
        return sums

    assert tinydist.launch(program, 2).results == [[2.0] * 3] * 2


def test_device_mesh():
    def program():
        mesh = dist.init_device_mesh("cpu", (2, 3), mesh_dim_names=("row", "column"))
        x, y = torch.tensor([float(dist.get_rank())]), torch.tensor([float(dist.get_rank())])
        dist.all_reduce(x, group=mesh.get_group("row"))
        dist.all_reduce(y, group=mesh["column"].get_group())
        return x.item(), y.item(), list(mesh.get_coordinate())

    assert tinydist.launch(program, 6).results == [
        (float(2 * (rank % 3) + 3), float(9 * (rank // 3) + 3), [rank // 3, rank % 3]) for rank in range(6)
    ]


def test_functional_collectives():
    def program():
        rank, world = float(dist.get_rank()), dist.group.WORLD
        x = torch.tensor([rank, 10 + rank])
        return [
            tensor.tolist()
            for tensor in (
                funcol.all_reduce(x, "sum", world),
                funcol.all_gather_single(x, 0, world),
                funcol.reduce_scatter_single(x, "max", 0, world),
                funcol.all_to_all_single(x, None, None, world),
                funcol.broadcast(x, 1, world),
                x,
            )
        ]

    for rank, result in enumerate(tinydist.launch(program, 2).results):
        own = 10.0 * rank
        assert result == [
            [1.0, 21.0],
            [0.0, 10.0, 1.0, 11.0],
            [own + 1],
            [own, own + 1],
            [1.0, 11.0],
            [rank, rank + 10.0],
        ]


@pytest.mark.filterwarnings("ignore::FutureWarning")
def test_collectives_with_gradients():
    def program():
        x = torch.tensor([1.0, 2.0], requires_grad=True)
        total = with_gradients.all_reduce(x * (1 + dist.get_rank()))
        total.sum().backward()
        return total.tolist(), x.grad.tolist()

    assert tinydist.launch(program, 2).results == [([3.0, 6.0], [2.0, 2.0]), ([3.0, 6.0], [4.0, 4.0])]


# Messages.


def swap_the_order(draw, posts):
    """The same posts in another order that keeps the order of those with the same peer and tag."""
    order = draw(st.permutations(range(len(posts))))
    by_lane = {}
    for post in posts:
        by_lane.setdefault((post["peer"], post["tag"], post["kind"]), []).append(post)
    lanes = [(posts[place]["peer"], posts[place]["tag"], posts[place]["kind"]) for place in order]
    return [by_lane[lane].pop(0) for lane in lanes]


@st.composite
def exchanges(draw):
    """What each rank posts, and the order in which it waits: messages between random ranks, with tags."""
    world = draw(st.sampled_from(WORLDS[1:]))
    pairs = st.permutations(range(world)).map(lambda ranks: ranks[:2])
    messages = draw(st.lists(st.tuples(pairs, st.integers(0, 2)), min_size=1, max_size=12))
    posts = [[] for _ in range(world)]
    for number, ((source, destination), tag) in enumerate(messages):
        posts[source].append({"kind": "send", "peer": destination, "tag": tag, "number": number})
        posts[destination].append({"kind": "recv", "peer": source, "tag": tag, "number": number})
    posts = [swap_the_order(draw, mine) for mine in posts]
    waits = [draw(st.permutations(range(len(mine)))) for mine in posts]
    return posts, waits, draw(st.sampled_from(DTYPES)), draw(st.booleans())


@given(exchange=exchanges())
def test_messages_with_the_same_peers_and_tag_arrive_in_order(exchange):
    posts, waits, dtype, strided = exchange

    def program():
        works, received = [], {}
        for post in posts[dist.get_rank()]:
            value = post["number"] + 1 if post["kind"] == "send" else 0
            tensor = torch.full((2, 3), value).to(dtype)
            tensor = tensor.mT.contiguous().mT if strided else tensor
            if post["kind"] == "send":
                works.append(dist.isend(tensor, post["peer"], tag=post["tag"]))
            else:
                works.append(dist.irecv(tensor, post["peer"], tag=post["tag"]))
                received[post["number"]] = tensor
        for index in waits[dist.get_rank()]:
            works[index].wait()
        return received

    for received in tinydist.launch(program, len(posts)).results:
        for number, tensor in received.items():
            assert torch.equal(tensor, torch.full((2, 3), number + 1).to(dtype))


@pytest.mark.parametrize("size", WORLDS[1:])
def test_a_ring_of_blocking_messages(size):
    def program():
        rank = dist.get_rank()
        token = torch.zeros(())
        if rank:
            assert dist.recv(token, src=rank - 1) == rank - 1
        token += 1
        dist.send(token, (rank + 1) % size)
        if rank == 0:
            dist.recv(token, src=size - 1)
        return token.item()

    assert tinydist.launch(program, size).results == [float(size), *(float(rank + 1) for rank in range(1, size))]


def test_receive_from_any():
    def program():
        rank, group = dist.get_rank(), dist.new_group([1, 2, 3])
        if rank == 0:
            received = []
            for _ in range(3):
                x = torch.zeros(1)
                received.append((dist.recv(x, tag=7), x.item()))
            return received
        dist.send(torch.tensor([10.0 * rank]), 0, tag=7)
        if rank == 3:
            x = torch.zeros(1)
            return dist.recv(x, group=group), x.item()
        if rank == 2:
            dist.send(torch.tensor([5.0]), 3, group=group)

    assert tinydist.launch(program, 4).results == [[(1, 10.0), (2, 20.0), (3, 30.0)], None, None, (2, 5.0)]


def test_a_receive_from_any_heeds_the_tag():
    def program():
        if dist.get_rank() == 0:
            works = [dist.isend(torch.tensor([float(tag)]), 1, tag=tag) for tag in (1, 2)]
            return [work.wait() for work in works]
        xs = torch.zeros(1), torch.zeros(1)
        for x, tag in zip(xs, (2, 1)):
            dist.recv(x, tag=tag)
        return [x.item() for x in xs]

    assert tinydist.launch(program, 2).results[1] == [2.0, 1.0]


def test_messages_within_a_group_by_either_number():
    def program():
        group = dist.new_group([1, 3])
        x = torch.zeros(1)
        if dist.get_rank() == 1:
            dist.send(torch.tensor([1.0]), group=group, group_dst=1)
            dist.send(torch.tensor([2.0]), 3, group=group)
        if dist.get_rank() == 3:
            dist.recv(x, group=group, group_src=0)
            first = x.item()
            dist.recv(x, 1, group=group)
            return first, x.item()

    assert tinydist.launch(program, 4).results[3] == (1.0, 2.0)


def test_messages_of_different_groups_do_not_meet():
    def program():
        group = dist.new_group([0, 1])
        if dist.get_rank() == 0:
            works = [dist.isend(torch.tensor([1.0]), 1), dist.isend(torch.tensor([2.0]), 1, group=group)]
            return [work.wait() for work in works]
        x, y = torch.zeros(1), torch.zeros(1)
        dist.recv(y, 0, group=group)
        dist.recv(x, 0)
        return x.item(), y.item()

    assert tinydist.launch(program, 2).results[1] == (1.0, 2.0)


@pytest.mark.parametrize("size", WORLDS[1:])
def test_batches_of_messages(size):
    def program():
        rank = dist.get_rank()
        after, before = (rank + 1) % size, (rank - 1) % size
        from_left, from_right = torch.zeros(1), torch.zeros(1)
        batch = [
            dist.P2POp(dist.isend, torch.tensor([float(rank)]), after, tag=1),
            dist.P2POp(dist.isend, torch.tensor([float(rank)]), before, tag=2),
            dist.P2POp(dist.irecv, from_right, after, tag=2),
            dist.P2POp(dist.irecv, from_left, before, tag=1),
        ]
        for work in dist.batch_isend_irecv(batch):
            work.wait()
        return int(from_left.item()), int(from_right.item())

    assert tinydist.launch(program, size).results == [((rank - 1) % size, (rank + 1) % size) for rank in range(size)]


def test_a_send_blocks_until_it_is_received():
    log = []

    def program():
        if dist.get_rank() == 0:
            dist.send(torch.ones(1), 1)
            log.append("sent")
        else:
            dist.barrier(dist.new_group([1], use_local_synchronization=True))
            log.append("about to receive")
            dist.recv(torch.zeros(1), 0)

    tinydist.launch(program, 2)
    assert log == ["about to receive", "sent"]


def test_a_receiver_gets_what_the_sender_has_when_they_meet():
    def program():
        x = torch.tensor([float(dist.get_rank())])
        work = dist.isend(x, 1) if dist.get_rank() == 0 else dist.irecv(x, 0)
        work.wait()
        x += 1  # the sender's tensor is its own again
        return x.item()

    assert tinydist.launch(program, 2).results == [1.0, 1.0]


# Autograd and modes of the ranks.


def test_a_loss_may_be_averaged_before_its_backward():
    def program():
        w = torch.tensor([1.0, 2.0], requires_grad=True)
        loss = (w * w).sum() * (1 + dist.get_rank())
        dist.all_reduce(loss, dist.ReduceOp.AVG)
        loss.backward()
        return loss.item(), w.grad.tolist()

    assert tinydist.launch(program, 2).results == [(7.5, [2.0, 4.0]), (7.5, [4.0, 8.0])]


def test_communication_is_not_part_of_the_graph():
    def program():
        w = torch.ones(2, requires_grad=True)
        whole = torch.zeros(4)
        dist.all_gather_single(whole, w)
        return whole.requires_grad, whole.is_inference()

    assert tinydist.launch(program, 2).results == [(False, False)] * 2


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode, torch.enable_grad])
def test_ranks_in_different_modes_meet(mode):
    def program():
        with mode() if dist.get_rank() == 0 else torch.enable_grad():
            x = torch.ones(2)
            dist.all_reduce(x)
            shards = [torch.zeros(2) for _ in range(3)]
            dist.all_gather(shards, x)
            return x.tolist(), shards[0].tolist()

    assert tinydist.launch(program, 3).results == [([3.0, 3.0], [3.0, 3.0])] * 3


def test_a_mode_that_watches_operators_sees_none_of_the_communication():
    seen = []

    class Watch(torch.utils._python_dispatch.TorchDispatchMode):
        def __torch_dispatch__(self, function, types, args=(), kwargs=None):
            seen.append((dist.get_rank(), str(function)))
            return function(*args, **(kwargs or {}))

    def program():
        x = torch.ones(2)
        with Watch():
            dist.all_reduce(x)
            x.mul_(2)
        return x.tolist()

    assert tinydist.launch(program, 3).results == [[6.0, 6.0]] * 3
    computing = [(rank, name) for rank, name in seen if not name.startswith("c10d")]
    assert computing == [(rank, "aten.mul_.Tensor") for rank in (0, 1, 2)]


# Real processes.

FEW_CASES = [
    Case(3, (0, 1, 2), 1, False, "SUM", torch.float32, (2, 3), "contiguous", ((1, 2, 0), (0, 1, 3), (2, 0, 1)), 1),
    Case(3, (0, 2), 1, True, "MAX", torch.int64, (4,), "contiguous", ((1, 2), (0, 1)), 2),
    Case(3, (1, 2), 0, False, "AVG", torch.bfloat16, (2,), "transposed", ((1, 2), (1, 1)), 3),
    Case(3, (0, 1, 2), 2, True, "BXOR", torch.uint8, (), "contiguous", ((1, 1, 1),) * 3, 4),
]
"""Cases that gloo can do."""


def gloo_can(name, case):
    of_scalars = not case.shape and name in ("all_gather_single", "reduce_scatter_single")
    return name != "all_to_all_uneven" and not of_scalars


def take_part_in_all():
    """What collectives give, and whether the tensors that a call wrote count as changed for autograd."""
    torch.manual_seed(0)
    results = []
    for case in FEW_CASES:
        for name, (_, _, number) in OPERATIONS.items():
            if gloo_can(name, case):
                results.append((name, case, take_part(name, case, False, case.tensors(number(case)))))
    return results, version_bumps()


def version_bumps():
    rank, size = dist.get_rank(), dist.get_world_size()

    def blank(n=4):
        return torch.zeros(n)

    def several():
        return [blank() for _ in range(size)]

    def watch(call, *tensors):
        before = [tensor._version for tensor in tensors]
        call(*tensors)
        return [tensor._version > version for tensor, version in zip(tensors, before)]

    at_root = rank == 0
    bumps = {
        "all_reduce": watch(dist.all_reduce, blank()),
        "broadcast": watch(lambda x: dist.broadcast(x, 0), blank()),
        "reduce": watch(lambda x: dist.reduce(x, 0), blank()),
        "all_gather": watch(lambda x, *out: dist.all_gather(list(out), x), blank(), *several()),
        "all_gather_single": watch(dist.all_gather_single, blank(4 * size), blank()),
        "gather": watch(lambda x, *out: dist.gather(x, list(out) if at_root else None), blank(), *several()),
        "scatter": watch(lambda x, *ins: dist.scatter(x, list(ins) if at_root else None), blank(), *several()),
        "reduce_scatter": watch(lambda x, *ins: dist.reduce_scatter(x, list(ins)), blank(), *several()),
        "reduce_scatter_single": watch(dist.reduce_scatter_single, blank(), blank(4 * size)),
        "all_to_all": watch(lambda *ts: dist.all_to_all(list(ts[:size]), list(ts[size:])), *several(), *several()),
        "all_to_all_single": watch(dist.all_to_all_single, blank(4 * size), blank(4 * size)),
        "send and recv": watch(
            lambda x: dist.recv(x, 0) if rank else [dist.send(x, r) for r in range(1, size)], blank()
        ),
    }
    w = torch.ones(2, requires_grad=True)
    loss = (w * w).sum().exp()  # exp keeps its result for its backward
    dist.all_reduce(loss)
    loss.backward()
    return bumps, w.grad


def test_the_same_on_real_processes():
    cloudpickle.register_pickle_by_value(sys.modules[__name__])
    try:
        real = tinydist.launch(take_part_in_all, 3, backend="gloo", timeout=60).results
    finally:
        cloudpickle.unregister_pickle_by_value(sys.modules[__name__])
    simulated = tinydist.launch(take_part_in_all, 3).results
    for (real_results, real_bumps), (results, bumps) in zip(real, simulated):
        for (name, case, theirs), (_, _, ours) in zip(real_results, results):
            torch.testing.assert_close(ours, theirs, rtol=0, atol=0, msg=lambda text: f"{name} of {case}: {text}")
        torch.testing.assert_close(bumps[1], real_bumps[1])
        assert bumps[0] == real_bumps[0]
