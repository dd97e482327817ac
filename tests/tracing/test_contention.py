"""Collectives that slow down what computes beside them: by a part that is said, and not at all unless it is said."""

from dataclasses import replace

import pytest
import torch
import torch.distributed as dist
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

import tinydist
from tinydist.data_parallel import DDP
from tinydist.hardware import Cluster, Link, costs
from tinydist.hardware.devices import A100_80GB

STEADY = replace(A100_80GB, launch_overhead=0.0)
WIRE = Link("wire", 0.0, 10e9)
NODE = Cluster(STEADY, 2, WIRE)
SIZE = 1024
PRODUCT = costs.kernel_time(STEADY, 2 * SIZE**3, 3 * 4 * SIZE**2)  # of float32: it is the FLOPs that take time


def beside(nbytes, products=1, kind="all_reduce"):
    """As many products while a transfer of ``nbytes`` is under way."""

    def program():
        x, gradient = torch.ones(SIZE, SIZE), torch.ones(nbytes // 4)
        with tinydist.region("here"):
            if kind == "all_reduce":
                work = dist.all_reduce(gradient, async_op=True)
            else:
                work = (dist.isend if dist.get_rank() == 0 else dist.irecv)(gradient, 1 - dist.get_rank())
            for _ in range(products):
                x @ x
            work.wait()

    return tinydist.launch(program, 2)


def seconds(run, cluster):
    return run.on(cluster).between("here").seconds


def takes(part_of_a_product):
    """Bytes whose all-reduce takes so long."""
    return int(part_of_a_product * PRODUCT * WIRE.bandwidth) // 4 * 4  # 2(p-1)/p is 1


def about(expected):
    return pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize("contention", [0.16, 0.5])
def test_a_product_that_is_overlapped_throughout_takes_longer_by_what_is_lost(contention):
    run = beside(takes(8), products=2)
    products = [e for e in run.on(NODE.at(contention=contention)).trace.of(0) if e.name == "mm"]
    assert [event.end - event.start for event in products] == about([PRODUCT / (1 - contention)] * 2)


def test_one_that_is_overlapped_for_a_while_is_slow_for_that_while():
    """Half a product's time of an all-reduce does a quarter of it at half speed; three quarters are left."""
    run = beside(takes(0.5))
    assert seconds(run, NODE) == about(PRODUCT)
    assert seconds(run, NODE.at(contention=0.5)) == about((0.5 + 0.75) * PRODUCT)


def test_a_collective_that_comes_in_the_middle_slows_down_the_rest():
    def program():
        x, gradient = torch.ones(SIZE, SIZE), torch.ones(takes(4) // 4)
        if dist.get_rank() == 1:
            x[: SIZE // 2] @ x  # half of a product before it comes
        else:
            work = dist.all_reduce(gradient, async_op=True)
            x @ x
        if dist.get_rank() == 1:
            work = dist.all_reduce(gradient, async_op=True)
        work.wait()

    trace = tinydist.launch(program, 2).on(NODE.at(contention=0.5)).trace
    (product,) = [event for event in trace.of(0) if event.name == "mm"]
    (half,) = [event for event in trace.of(1) if event.name == "mm"]
    assert half.end - half.start == about(PRODUCT / 2)
    assert product.end - product.start == pytest.approx(PRODUCT / 2 + PRODUCT, rel=0.01)


def test_what_waits_for_memory_and_what_is_beside_a_message_lose_nothing():
    def program():
        x, gradient = torch.ones(SIZE, SIZE), torch.ones(takes(8) // 4)
        work = dist.all_reduce(gradient, async_op=True)
        x + x
        x @ x[:, :1]  # a product, but of a vector: it waits for memory
        work.wait()

    for run in (tinydist.launch(program, 2), beside(takes(8), kind="message")):
        free, lost = run.on(NODE).trace, run.on(NODE.at(contention=0.5)).trace
        assert [(e.name, e.start, e.end) for e in free.events] == [(e.name, e.start, e.end) for e in lost.events]


def test_ddps_overlap_is_worth_less():
    def program():
        model = DDP(nn.Sequential(*[nn.Linear(512, 512, bias=False) for _ in range(6)]), bucket_bytes=2**20)
        for step in range(3):
            with tinydist.region(f"step {step}"):
                model(torch.ones(2048, 512)).sum().backward()

    run = tinydist.launch(program, 2).between("step 2")
    free, measured, more = (run.on(NODE.at(contention=part)).seconds for part in (0, 0.16, 0.5))
    assert free < measured < more < 2 * free


PROGRAMS = st.lists(
    st.one_of(
        st.tuples(st.just("product"), st.integers(1, 300)),
        st.tuples(st.just("sum"), st.integers(1, 10**5)),
        st.tuples(st.just("all_reduce"), st.integers(1, 10**5)),
        st.tuples(st.just("send"), st.integers(1, 10**5)),
        st.tuples(st.just("wait"), st.just(0)),
    ),
    max_size=12,
)


def run_steps(steps):
    """Ranks have products of unlike sizes; transfers are waited for later, in the order in which they were issued."""
    rank, works = dist.get_rank(), []
    for name, size in [*steps, ("wait", 0)]:
        if name == "product":
            x = torch.ones(size * (rank + 1), size)
            x @ x.T
        elif name == "sum":
            torch.ones(size).add_(1)
        elif name == "all_reduce":
            works.append(dist.all_reduce(torch.ones(size), async_op=True))
        elif name == "send":
            works.append((dist.irecv if rank else dist.isend)(torch.ones(size), 1 - rank))
        else:
            for work in works:
                work.wait()
            works = []


@given(PROGRAMS)
def test_with_nothing_to_lose_it_is_the_plain_clock(steps):
    """Though it learns when a product ends only when it has."""
    run = tinydist.launch(run_steps, 2, steps)
    cluster = Cluster(A100_80GB, 2, WIRE)
    plain, careful = run.on(cluster).trace, run.on(replace(cluster, contention=1e-300)).trace
    assert [(e.rank, e.stream, e.name) for e in plain.events] == [(e.rank, e.stream, e.name) for e in careful.events]
    assert [e.end for e in careful.events] == pytest.approx([e.end for e in plain.events], rel=1e-9)
    assert [m.peak for m in plain.memory] == [m.peak for m in careful.memory]


def test_it_is_a_part_below_all():
    for wrong in (1, -0.1, "much", True):
        with pytest.raises(
            ValueError, match=r"contention must be a number >= 0 and < 1, the fraction of speed that is lost, got "
        ):
            NODE.at(contention=wrong)
    assert NODE.at().contention == 0 and NODE.at(contention=0.2).at(matmul=0.5).contention == 0.2
