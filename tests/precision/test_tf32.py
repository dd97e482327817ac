"""TF32: numbers that a CPU can show, forward and backward, and the rate of the tensor cores in virtual time."""

from dataclasses import replace

import pytest
import torch

import tinydist
from tinydist.hardware.cluster import A100_NODE
from tinydist.hardware.devices import A100_80GB, V100
from tinydist.precision import round_to, tf32

STEADY = replace(A100_NODE, device=replace(A100_80GB, launch_overhead=0.0))


def randoms(*shape, seed=0):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def rounded(x):
    return round_to(x, "tf32")


@pytest.mark.parametrize(
    "product, shapes",
    [
        (lambda a, b: a @ b, [(8, 16), (16, 4)]),
        (torch.bmm, [(3, 8, 16), (3, 16, 4)]),
        (lambda a, b: torch.nn.functional.linear(a, b, torch.full((4,), 1 + 2.0**-20)), [(8, 16), (4, 16)]),
    ],
    ids=["mm", "bmm", "a linear layer, whose bias is added in fp32"],
)
def test_factors_are_rounded_and_their_product_is_added_up_in_fp32(product, shapes):
    a, b = randoms(*shapes[0]), randoms(*shapes[1], seed=1)
    with tf32():
        found = product(a, b)
    assert torch.equal(found, product(rounded(a), rounded(b)))
    exact = product(a.double(), b.double()) if len(shapes[1]) == 3 or shapes[1][0] == 16 else None
    if exact is not None:
        assert 1e-5 < ((found - exact).norm() / exact.norm()).item() < 2**-10
    assert torch.equal(product(a, b), product(a, b)) and not torch.equal(product(a, b), found)


def test_backward_too():
    a, b, dy = randoms(8, 16).requires_grad_(), randoms(16, 4, seed=1), randoms(8, 4, seed=2)
    with tf32():
        (a @ b).backward(dy)
    assert torch.equal(a.grad, rounded(dy) @ rounded(b).T)


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_other_dtypes_and_operators_stay(dtype):
    a = randoms(8, 8).to(dtype)
    with tf32():
        found, added = a @ a, a + a
    assert torch.equal(found, a @ a) and torch.equal(added, a + a)


def products(context=None, precision=None):
    x = torch.ones(1024, 1024)
    if precision:
        torch.set_float32_matmul_precision(precision)
    with context() if context else torch.no_grad():
        x @ x
    torch.distributed.barrier()
    x.bfloat16() @ x.bfloat16()


def seconds_of_products(*how):
    trace = tinydist.launch(products, 2, *how).on(STEADY).trace
    return [event.end - event.start for event in trace.of(1) if event.name == "mm"]


@pytest.mark.parametrize("how", [(tf32,), (None, "high"), (None, "medium")], ids=["tf32()", "high", "medium"])
def test_in_virtual_time_products_of_float32_run_at_its_rate(how):
    flops = 2 * 1024**3
    assert seconds_of_products(*how) == pytest.approx([flops / 156e12, flops / 312e12])
    assert seconds_of_products(None, "highest") == pytest.approx([flops / 19.5e12, flops / 312e12])


def test_nothing_is_left_of_it_afterwards():
    before = torch.get_float32_matmul_precision(), torch.backends.cuda.matmul.fp32_precision
    for how in [(tf32,), (None, "high")]:
        tinydist.launch(products, 2, *how)
        assert (torch.get_float32_matmul_precision(), torch.backends.cuda.matmul.fp32_precision) == before


def test_one_rank_may_and_another_not():
    """Each enters and leaves while the other is within, or not."""

    def program():
        x = torch.ones(512, 512)
        for turn in range(2):
            with tf32() if torch.distributed.get_rank() == turn else torch.no_grad():
                torch.distributed.barrier()
                x @ x

    record = tinydist.launch(program, 2).record
    dtypes = [[entry.dtype for entry in each if getattr(entry, "name", "") == "mm"] for each in record.programs]
    assert dtypes == [["tf32", torch.float32], [torch.float32, "tf32"]]


def test_fake_ranks_take_the_same_time():
    real, fake = (tinydist.launch(products, 2, tf32, fake=fake).on(STEADY) for fake in (False, True))
    assert real.seconds == fake.seconds


def test_rounding_takes_no_time_nor_memory():
    def program(context):
        x = torch.ones(256, 256)
        with context():
            return x @ x

    plain, rounds = (tinydist.launch(program, 1, context) for context in (torch.no_grad, tf32))
    names = [[event.name for event in run.trace.of(0)] for run in (plain, rounds)]
    assert names[0] == names[1] and plain.memory[0].peak == rounds.memory[0].peak


def test_a_device_without_it_computes_in_float32():
    assert V100.peak_of("tf32") == V100.peak_of("float32")
    assert A100_80GB.peak_of("tf32") == 8 * A100_80GB.peak_of("float32")
