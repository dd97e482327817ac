"""Every algorithm leaves behind what torch.distributed's own collective does, on any number of ranks."""

import re

import pytest
import torch
import torch.distributed as dist
from collectives.every_algorithm import ALGORITHMS, REDUCES, Case
from hypothesis import example, given
from hypothesis import strategies as st
from torch.distributed import ReduceOp
from unobserved import launch

import tinydist
from tinydist.collectives import hierarchical, ring, tree

each_algorithm = pytest.mark.parametrize("name", ALGORITHMS)
worlds = st.sampled_from([*range(1, 10), 16])


@st.composite
def cases(draw):
    p = draw(worlds)
    op = draw(st.sampled_from(list(REDUCES)))
    dtype = draw(st.sampled_from(REDUCES[op]))
    return p, Case(draw(st.integers(0, 40)), draw(st.integers(0, p - 1)), op, dtype, draw(st.integers(1, 9)))


def ours_and_torchs(name, case, group=None):
    run, library = ALGORITHMS[name]
    return run(library, case, group), run(dist, case, group)


def assert_same(results, case):
    for rank, (ours, theirs) in enumerate(results):
        assert ours.dtype == case.dtype
        assert torch.equal(ours, theirs), f"rank {rank}: {ours} and not {theirs}"


@each_algorithm
@example((3, Case(1, op=ReduceOp.AVG, dtype=torch.complex64)))  # a third is rounded once
@given(cases())
def test_equals_torchs_own(name, drawn):
    p, case = drawn
    assert_same(launch(ours_and_torchs, p, name, case).results, case)


def test_equals_torchs_own_on_processes():
    def program():
        return [ours_and_torchs(name, Case(count, root=1)) for name in ALGORITHMS for count in (0, 1, 7)]

    for result in zip(*tinydist.launch(program, 3, backend="gloo", timeout=60).results):
        assert_same(result, Case())


@each_algorithm
@pytest.mark.parametrize("members", [[1, 4, 2], [0, 3, 4, 5, 1], [5]], ids=str)
def test_equals_torchs_own_in_a_group(name, members):
    case = Case(11, root=members[-1])

    def program():
        group = dist.new_group(members)
        return ours_and_torchs(name, case, group) if dist.get_rank() in members else None

    results = launch(program, 6).results
    assert_same([results[rank] for rank in members], case)
    assert all(results[rank] is None for rank in range(6) if rank not in members)


@pytest.mark.parametrize("nodes, per_node", [(1, 1), (1, 4), (4, 1), (2, 2), (2, 3), (3, 4), (4, 4)])
@pytest.mark.parametrize("op, dtype", [("SUM", torch.float32), ("AVG", torch.int32), ("MAX", torch.int8)])
@pytest.mark.parametrize("count", [0, 1, 7, 24])
def test_hierarchical(nodes, per_node, op, dtype, count):
    def program():
        mesh = dist.init_device_mesh("cpu", (nodes, per_node), mesh_dim_names=("node", "device"))
        tensor = torch.arange(count).to(dtype) + dist.get_rank()
        theirs = tensor.clone()
        reduction = getattr(ReduceOp, op)
        hierarchical.all_reduce(tensor, mesh["device"].get_group(), mesh["node"].get_group(), reduction)
        dist.all_reduce(theirs, reduction)
        return tensor, theirs

    for ours, theirs in launch(program, nodes * per_node).results:
        assert torch.equal(ours, theirs)


def test_every_rank_gets_the_same_bits():
    """Sums of floats depend on the order. It differs from part to part, and not from rank to rank."""

    def program():
        tensor = torch.rand(1000, generator=torch.Generator().manual_seed(dist.get_rank()))
        ring.all_reduce(tensor)
        return tensor

    first, *others = launch(program, 7).results
    assert all(torch.equal(first, other) for other in others)


def test_a_tensor_that_is_no_row_of_numbers():
    message = re.escape("got shape [3, 2] with strides [1, 3]")
    with pytest.raises(ValueError, match=message):
        launch(lambda: ring.all_reduce(torch.ones(2, 3).t()), 2)


def test_a_tensor_of_two_dims():
    def program():
        tensor = torch.ones(2, 3)
        ring.all_reduce(tensor)
        return tensor

    assert torch.equal(launch(program, 4).results[3], torch.full((2, 3), 4.0))


def test_reduce_leaves_the_others_as_they_are():
    def program():
        tensor = torch.full((3,), dist.get_rank() + 1.0)
        tree.reduce(tensor, dst=2)
        return tensor.tolist()

    assert launch(program, 4).results == [[1.0] * 3, [2.0] * 3, [10.0] * 3, [4.0] * 3]
