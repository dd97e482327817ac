"""Block-sparse attention: equal to masked attention, forward and backward; FLOPs and bytes by the blocks present."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.nn.attention.flex_attention import create_block_mask, flex_attention
from torch.utils.flop_counter import FlopCounterMode

import tinydist
from tinydist.attention import attention, block_sparse_attention, flash_attention
from tinydist.attention.sparse_layouts import bigbird, dilated, fixed, longformer, strided, variable, window

LAYOUTS = {
    "window": window(7),
    "dilated": dilated(7),
    "strided": strided(7, 3),
    "fixed": fixed(7, 3),
    "variable": variable(7, (1, 2), random=1),
    "longformer": longformer(7),
    "bigbird": bigbird(7),
    "each head its own": torch.stack([window(7), bigbird(7), fixed(7, 2, pattern=1), longformer(7, 1)]),
    "all": torch.ones(7, 7, dtype=torch.bool),
}
EXACT = dict(rtol=0, atol=1e-10)


def inputs(T, S, heads=4, groups=2, d=6, e=5, dtype=torch.float64):
    generator = torch.Generator().manual_seed(T + S)
    shapes = (2, heads, T, d), (2, groups, S, d), (2, groups, S, e)
    return [torch.randn(shape, generator=generator, dtype=dtype).requires_grad_() for shape in shapes]


def by_tokens(layout, block, T, S):
    return layout.repeat_interleave(block, -2).repeat_interleave(block, -1)[..., :T, :S]


def gradients(out, tensors):
    return torch.autograd.grad(out, tensors, torch.linspace(-1, 1, out.numel(), dtype=out.dtype).view(out.shape))


def check(layout, block, T, S, causal, **shapes):
    tensors = inputs(T, S, **shapes)
    ours = block_sparse_attention(*tensors, layout, block, causal=causal)
    theirs = attention(*tensors, mask=by_tokens(layout, block, T, S), causal=causal)
    torch.testing.assert_close(ours, theirs, **EXACT)
    torch.testing.assert_close(gradients(ours, tensors), gradients(theirs, tensors), **EXACT)


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("name", LAYOUTS)
def test_it_equals_masked_attention(name, causal):
    check(LAYOUTS[name], 4, 26, 26, causal)


@given(st.data())
def test_any_layout(data):
    """Rows that see nothing included: zeros, and gradients without NaN."""
    block, T, S = (data.draw(st.integers(1, most)) for most in (4, 9, 9))
    heads = data.draw(st.sampled_from([1, 2, 4]))
    seed = data.draw(st.integers(0, 2**20))
    shape = data.draw(st.sampled_from([1, heads])), -(-T // block), -(-S // block)
    layout = torch.rand(shape, generator=torch.Generator().manual_seed(seed)) < data.draw(st.floats(0, 1))
    check(layout, block, T, S, data.draw(st.booleans()), heads=heads, groups=data.draw(st.sampled_from([1, heads])))


def test_rows_that_see_nothing():
    layout = window(3)
    layout[1] = False
    tensors = inputs(6, 6)
    out = block_sparse_attention(*tensors, layout, 2)
    assert out[:, :, 2:4].eq(0).all() and out.isfinite().all()
    dq, dk, dv = gradients(out, tensors)
    assert dq[:, :, 2:4].eq(0).all() and dq.isfinite().all() and dk.isfinite().all() and dv.isfinite().all()


def test_flex_attention_gives_the_same():
    layout = LAYOUTS["bigbird"]
    tensors = [each.detach() for each in inputs(28, 28, dtype=torch.float32)]

    def seen(b, h, i, j):
        return layout[i // 4, j // 4] & (i >= j)

    mask = create_block_mask(seen, None, None, 28, 28, device="cpu", BLOCK_SIZE=4)
    ours = block_sparse_attention(*tensors, layout, 4, causal=True)
    theirs = flex_attention(*tensors, block_mask=mask, enable_gqa=True)  # on a CPU it has no backward
    torch.testing.assert_close(ours, theirs, rtol=0, atol=2e-6)


def flops(program):
    with FlopCounterMode(display=False) as counter:
        program()
    return counter.get_total_flops()


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("name", LAYOUTS)
def test_flops_are_those_of_the_blocks_that_are_there(name, causal):
    """Forward 4 b b d a block, backward 10; of causal ones those above the diagonal are left out."""
    block, d = 4, 8
    q, k, v = inputs(28, 28, d=d, e=d)
    layout = LAYOUTS[name]
    present = layout.expand(4, 7, 7).tril() if causal else layout.expand(4, 7, 7)
    of_blocks = 2 * int(present.sum()) * block * block * d

    def forward():
        return block_sparse_attention(q, k, v, layout, block, causal=causal)

    assert flops(forward) == 4 * of_blocks
    assert flops(lambda: gradients(forward(), (q, k, v))) == 14 * of_blocks


def test_memory_is_linear_as_that_of_flash_attention():
    """Between the passes both keep q, k, v, the output and a number a query. Stored scores are T^2."""

    def program(attend, T):
        tensors = inputs(T, T, 1, 1, 8, 8, torch.float32)
        tinydist.mark("start")
        out = attend(*tensors)
        tinydist.mark("end")
        return out.nbytes

    def kept(attend, T):
        memory = tinydist.launch(program, 1, attend, T).memory[0]
        return sum(memory.at("end").values()) - sum(memory.at("start").values())

    def sparse(q, k, v):
        return block_sparse_attention(q, k, v, longformer(q.shape[2] // 16), 16)

    for T in (256, 512):
        assert kept(flash_attention, T) == 2 * T * (8 + 1) * 4
        assert kept(sparse, T) == kept(flash_attention, T) + (T // 16) ** 2  # the layout
        assert kept(attention, T) > 2 * 2 * T * T * 4


def test_low_precision_adds_up_in_float32():
    wide = inputs(28, 28, dtype=torch.float32)
    narrow = [each.detach().bfloat16() for each in wide]
    layout = LAYOUTS["bigbird"]
    out = block_sparse_attention(*narrow, layout, 4)
    exact = attention(*(each.float() for each in narrow), mask=by_tokens(layout, 4, 28, 28))
    assert out.dtype == torch.bfloat16
    torch.testing.assert_close(out, exact.bfloat16(), rtol=2**-7, atol=2**-9)


def test_errors():
    q, k, v = inputs(6, 6)
    with pytest.raises(
        ValueError,
        match=r"4 heads, 6 queries and 6 keys in blocks of 2 need a layout \[4 or 1, 3, 3\], got \[1, 4, 4\]",
    ):
        block_sparse_attention(q, k, v, window(4), 2)
    with pytest.raises(ValueError, match="block_sparse_attention: layout must be bool"):
        block_sparse_attention(q, k, v, window(3).int(), 2)
    with pytest.raises(ValueError, match="block_sparse_attention: block must be an integer >= 1, got 0"):
        block_sparse_attention(q, k, v, window(3), 0)
    with pytest.raises(ValueError, match=r"num_heads \(4\) must be divisible by num_kv_heads \(3\)"):
        block_sparse_attention(q, *(torch.ones(2, 3, 6, 6, dtype=torch.float64),) * 2, window(3), 2)
