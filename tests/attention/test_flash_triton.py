"""The Triton kernels: compiled on a GPU, interpreted elsewhere. Skipped where there is no Triton."""

import math

import pytest
import torch

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
triton = pytest.importorskip("triton", reason="Triton is not installed: make kernels")

from tinydist.attention import GroupedQueryAttention, KVCache, attention, packed_attention  # noqa: E402
from tinydist.attention.flash_triton import (  # noqa: E402
    flash_attention_triton,
    flash_forward_triton,
    packed_flash_attention_triton,
)
from tinydist.attention.kernels import launch  # noqa: E402

TILE = (32, 16)


def inputs(T, S, heads=2, groups=1, dim=16, values=None, batch=1, dtype=torch.float32):
    generator = torch.Generator().manual_seed(T * S)
    shapes = (heads, T, dim), (groups, S, dim), (groups, S, values or dim)
    tensors = [torch.randn(batch, *each, generator=generator) for each in shapes]
    return [each.to(DEVICE, dtype).requires_grad_() for each in tensors]


def gradients(out, tensors):
    dout = torch.linspace(-1, 1, out.numel(), device=DEVICE).view(out.shape).to(out)
    return torch.autograd.grad(out, tensors, dout)


def assert_same(ours, theirs, tensors):
    torch.testing.assert_close(ours, theirs, rtol=0, atol=3e-6)
    torch.testing.assert_close(gradients(ours, tensors), gradients(theirs, tensors), rtol=1e-5, atol=3e-5)


@pytest.mark.parametrize(
    "sizes, options",
    [
        (dict(T=1, S=1, batch=2), {}),
        (dict(T=37, S=37, batch=2), dict(causal=True)),
        (dict(T=5, S=40, heads=4, groups=2), dict(causal=True)),
        (dict(T=70, S=70, heads=1), dict(causal=True, window=20)),
        (dict(T=40, S=70, heads=1), dict(window=20)),
        (dict(T=40, S=33, heads=3, dim=20, values=40), dict(causal=True, window=3)),
        (dict(T=33, S=33, heads=1), dict(causal=True, scale=-0.5)),
        (dict(T=33, S=20, heads=1), dict(causal=True, scale=0)),
    ],
)
def test_forward_and_backward_equal_naive(sizes, options):
    tensors = inputs(**sizes)
    assert_same(flash_attention_triton(*tensors, tile=TILE, **options), attention(*tensors, **options), tensors)


@pytest.mark.parametrize("options", [{}, dict(causal=True), dict(causal=True, window=9)])
@pytest.mark.parametrize("bounds, bounds_k", [([0, 30, 30, 51, 52], None), ([0, 30, 30, 51], [0, 10, 20, 60])])
def test_packed_sequences_equal_naive(bounds, bounds_k, options):
    tensors = inputs(bounds[-1], (bounds_k or bounds)[-1])
    options = dict(cu_seqlens_k=bounds_k, **options)
    ours = packed_flash_attention_triton(*tensors, bounds, tile=TILE, **options)
    assert_same(ours, packed_attention(*tensors, bounds, **options), tensors)


@pytest.mark.parametrize("deterministic", [False, True])
@pytest.mark.parametrize(
    "T, options",
    [
        (1, dict(offset=[39, 0, 17], causal=True)),
        (20, dict(offset=[20, 0, 7], causal=True)),
        (20, dict(offset=[20, 0, 7], causal=True, window=9)),
        (20, dict(offset=[20, 0, 7], window=9)),
    ],
)
def test_each_sequence_behind_a_past_of_its_own_equals_naive(T, options, deterministic, monkeypatch):
    monkeypatch.setattr(torch, "are_deterministic_algorithms_enabled", lambda: deterministic)
    tensors = inputs(T, 40, 1, batch=3)
    assert_same(flash_attention_triton(*tensors, tile=(16, 16), **options), attention(*tensors, **options), tensors)


def test_a_layer_attends_so_behind_a_cache_of_sequences_of_different_lengths():
    def decoded(attend):
        torch.manual_seed(0)
        layer, cache = GroupedQueryAttention(32, 2, 1, attend=attend).to(DEVICE), KVCache(3, 1, 8, 16, device=DEVICE)
        x = torch.randn(3, 6, 32, device=DEVICE)
        with torch.no_grad():
            return layer(x[:, :5], cache=cache, counts=[5, 0, 2]), layer(x[:, 5:], cache=cache)

    torch.testing.assert_close(decoded(flash_attention_triton), decoded(attention), rtol=0, atol=3e-6)


def test_packed_sequences_see_nothing_of_one_another():
    """Tiles are read over the end of a sequence: what lies there must not matter."""
    bounds, (q, k, v) = [0, 20, 40], inputs(40, 40)
    with torch.no_grad():
        first = packed_flash_attention_triton(q, k, v, bounds, tile=TILE)[:, :, :20]
        for each in (q, k, v):
            each[:, :, 20:] = 1e4
        again = packed_flash_attention_triton(q, k, v, bounds, tile=TILE)[:, :, :20]
    assert torch.equal(first, again)


def plain(q, k, v, visible):
    scores = (q @ k.mT / math.sqrt(q.shape[-1])).masked_fill(~visible, -math.inf)
    return scores.softmax(-1) @ v


@pytest.mark.parametrize(
    "dim, dtype, T, S",
    [
        (64, torch.float16, 140, 150),
        (64, torch.bfloat16, 140, 150),
        (80, torch.bfloat16, 70, 150),
        (128, torch.bfloat16, 140, 150),
        (256, torch.bfloat16, 40, 70),
    ],
)
def test_errors_in_half_precision_are_not_above_those_of_plain_attention(dim, dtype, T, S):
    """The tiles that a GPU gets, under FlashAttention's own rule: against float32, 2 times the error of plain
    attention, 3 times for gradients.
    """
    tensors = inputs(T, S, 2, 2, dim=dim, dtype=dtype)
    wide = [each.detach().float().requires_grad_() for each in tensors]
    visible = torch.ones(T, S, device=DEVICE).tril(S - T).bool()
    exact, lossy = plain(*wide, visible), plain(*tensors, visible)
    ours = flash_attention_triton(*tensors, causal=True)
    assert (ours - exact).abs().max() <= 2 * (lossy - exact).abs().max()
    for mine, theirs, true in zip(*(gradients(*each) for each in ((ours, tensors), (lossy, tensors), (exact, wide)))):
        assert mine.dtype == dtype
        assert (mine - true).abs().max() <= 3 * (theirs - true).abs().max()


@pytest.mark.parametrize("T, S", [(0, 3), (3, 0), (40, 3)])
def test_queries_that_see_nothing_get_zeros(T, S):
    tensors = inputs(T, S)
    out = flash_attention_triton(*tensors, causal=True, tile=TILE)
    unseeing = max(0, T - S)
    assert out[:, :, :unseeing].eq(0).all() and out.isfinite().all()
    of_q, *others = gradients(out, tensors)
    assert of_q[:, :, :unseeing].eq(0).all()
    assert all(each.isfinite().all() for each in (of_q, *others))


def by_tokens(x):
    """[B, T, H, d] in memory, as a projection leaves it."""
    return x.transpose(1, 2).contiguous().transpose(1, 2)


def off_by_one(x):
    """No row begins at a multiple of 16 bytes: no descriptor can be had of it."""
    wide = x.new_zeros(*x.shape[:3], x.shape[3] + 1)
    wide[..., 1:] = x
    return wide[..., 1:]


@pytest.mark.parametrize("lay", [by_tokens, off_by_one, lambda x: x.mT.contiguous().mT])
def test_tensors_are_read_where_they_lie(lay):
    tensors = [lay(each.detach()).requires_grad_() for each in inputs(20, 30, 4, 2)]
    ours = flash_attention_triton(*tensors, tile=TILE)
    assert ours.transpose(1, 2).is_contiguous()
    assert_same(ours, attention(*tensors), tensors)


def test_gradients_of_an_expanded_output():
    tensors = inputs(20, 30)
    ours, theirs = (torch.autograd.grad(each(*tensors).sum(), tensors) for each in (flash_attention_triton, attention))
    torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=3e-5)


@pytest.mark.parametrize("options", [dict(causal=True), dict(window=9)])
def test_deterministic_gradients_are_the_same_ones(options, monkeypatch):
    monkeypatch.setattr(torch, "are_deterministic_algorithms_enabled", lambda: True)
    tensors = inputs(37, 40, 2, 1)
    assert_same(flash_attention_triton(*tensors, tile=TILE, **options), attention(*tensors, **options), tensors)


def test_all_choices_are_tried_once_and_leave_no_trace(monkeypatch):
    """Programs add to q's gradient: each trial must find zeros."""
    tried = []

    def instant(tuner, call, quantiles):
        call()
        tried.append(call)
        return [1.0] * 3

    monkeypatch.setattr(triton.runtime.autotuner.Autotuner, "do_bench", instant)
    monkeypatch.setattr(launch, "choices", lambda *_: ((32, 16, 4, 1), (16, 32, 4, 1)))
    launch.autotuned.cache_clear()
    tensors = inputs(20, 20, 1)
    for _ in range(2):
        assert_same(flash_attention_triton(*tensors), attention(*tensors), tensors)
    assert len(tried) == 4  # two tiles of two kernels


@pytest.mark.parametrize("causal", [False, True])
def test_the_plain_kernel_gives_the_same_output(causal):
    q, k, v = (each.detach() for each in inputs(20, 37))
    ours, lse = flash_forward_triton(q, k, v, causal=causal, tile=TILE)
    torch.testing.assert_close(ours, attention(q, k, v, causal=causal), rtol=0, atol=2e-6)
    scores = q @ k.mT / 4
    visible = torch.ones(20, 37, device=DEVICE).tril(17 if causal else 37).bool()
    expected = scores.masked_fill(~visible, -math.inf).logsumexp(-1) * math.log2(math.e)
    torch.testing.assert_close(lse, expected, rtol=0, atol=2e-6)


@pytest.mark.parametrize("kind, tile", [("forward", 128), ("queries", 128), ("backward", 64)])
def test_programs_are_on_one_axis_of_the_grid(kind, tile):
    """The first may have 2^31 - 1, the others 65,535: fewer than the heads of some batches."""
    arguments = dict(longest=1000, H=64, sequences=3, M=128, N=64)
    assert launch.grid_of(kind, 2048, arguments) == (math.ceil(1000 / tile) * 64 * 3 * 2048,)


@pytest.mark.parametrize("bounds, first", [(None, (128, 64, 8, 2)), ([0, 1], (128, 32, 8, 3))])
def test_packed_sequences_get_tiles_that_leave_registers_for_their_bounds(bounds, first, monkeypatch):
    monkeypatch.setattr(launch, "architecture", lambda: 80)
    arguments = dict(q=None, D=128, E=128, bounds_q=bounds)
    assert launch.choices("forward", arguments, torch.bfloat16)[0] == first


def test_head_dims_are_padded_to_powers_of_2():
    assert [launch.padded(dim) for dim in (1, 16, 17, 80, 128, 192)] == [16, 16, 32, 128, 128, 256]


def test_errors():
    q, k, v = inputs(4, 4)
    name = "^flash_attention_triton: "
    with pytest.raises(
        ValueError, match=name + "head_dim for torch.float32 must be from 1 to 128, got 129 of q and k, 16 of v"
    ):
        flash_attention_triton(*(torch.ones(1, 2, 4, 129, device=DEVICE),) * 2, torch.ones(1, 2, 4, 16, device=DEVICE))
    for tile in ((64, 24), (64, 64.0), 64):
        with pytest.raises(ValueError, match=name + "tile must be two powers of 2 >= 16, or None, got "):
            flash_attention_triton(q, k, v, tile=tile)
    with pytest.raises(TypeError, match=name + "dtype must be float16, bfloat16 or float32, got torch.float64"):
        flash_attention_triton(q.double(), k.double(), v.double())
    with pytest.raises(ValueError, match=name + r"offset must have an entry for each of 1 sequences, got \[0, 0\]$"):
        flash_attention_triton(q, k, v, offset=[0, 0])
    with pytest.raises(ValueError, match=name + r"num_heads \(2\) must be divisible by num_kv_heads \(3\)"):
        flash_attention_triton(q, *(torch.ones(1, 3, 4, 16, device=DEVICE),) * 2)
    with pytest.raises(
        ValueError, match=r"^packed_flash_attention_triton: cu_seqlens must be non-decreasing from 0 to the 4 tokens"
    ):
        packed_flash_attention_triton(q, k, v, [0, 5])
