"""The exercises on flash attention: what they are compared with is attention, and their limits have room."""

import math

import pytest
import torch
from lab.registered import solved

from tinydist.attention import HBM, attention
from tinydist.attention.hbm import flash_2
from tinydist.attention.kernels.configs import HOPPER, SHARED
from tinydist.attention.mask import tiles
from tinydist.attention.online_softmax import SoftmaxState, finish, merge
from tinydist.attention.packed import PackedMask
from tinydist.lab.differences import close
from tinydist.lab.judging import judge
from tinydist.syllabus.registry import find


def each_case(name, *but):
    """Without the worlds that say one of these words: attention alone does not give what is right there."""
    cases = [case for case in find(name).cases if not any(words in case.about for words in but)]
    return pytest.mark.parametrize("case", cases, ids=str)


def heads(*tensors):
    return (tensor[None, None] for tensor in tensors)


def right(name, case):
    return find(name).right(case).returned[0]


@each_case("merge_states", "five pairs")
def test_merged_attention_is_that_of_the_library(case):
    parts = [SoftmaxState(lse[:, None], (lse[:, None] > -math.inf).float(), out) for out, lse in case.arguments(0)]
    out, lse = finish(merge(*parts))
    assert all(map(close, right("merge_states", case), (out, lse[:, 0])))


@each_case("flash_row", "NaN in value 0", "-10^12")
def test_a_row_is_that_of_attention(case):
    """The sink is a key whose value is zero."""
    q, k, v, start, _, window, sink = case.arguments(0)
    out, lse = right("flash_row", case)
    far = torch.arange(start, start + len(q))[:, None] - torch.arange(len(k))
    scores = (q.double() @ k.double().T / math.sqrt(q.shape[1])).masked_fill((far < 0) | (far >= window), -math.inf)
    with_sink = torch.cat([scores, torch.full((len(q), 1), sink, dtype=scores.dtype)], 1)
    assert close(out, (with_sink.softmax(1)[:, :-1] @ v.double()).float())
    assert close(lse, with_sink.logsumexp(1))


@each_case("mended_flash", "NaN in the last")
def test_the_whole_is_that_of_attention(case):
    q, k, v, _ = case.arguments(0)
    assert close(right("mended_flash", case), attention(*heads(q, k, v), causal=True)[0, 0])


@each_case("flash_column")
def test_a_column_is_that_of_autograd(case):
    """With the sizes of the world, and numbers of its own; the library's grouped heads."""
    keys, values, queries, *_, start, tile, window = case.arguments(0)
    generator, (heads, length, d) = torch.Generator().manual_seed(3), queries.shape
    q = torch.randn(heads, length, d, generator=generator).double()
    k, v = (torch.randn(length, width, generator=generator).double() for width in (d, values.shape[1]))
    dout = torch.randn(heads, length, v.shape[1], generator=generator).double()
    for each in (k, v):
        each.requires_grad_()
    out = attention(q[None], k[None, None], v[None, None], causal=True, window=window)[0]
    out.backward(dout)
    own = slice(start, start + len(keys))
    delta, lse = (dout * out.detach()).sum(2), lse_of(q, k.detach(), window)
    given = k[own].detach(), v[own].detach(), q, dout, lse, delta
    assert all(map(close, find("flash_column").reference(*given, start, tile, window), (k.grad[own], v.grad[own])))


def lse_of(q, k, window):
    far = torch.arange(q.shape[1])[:, None] - torch.arange(len(k))
    return (q @ k.T / math.sqrt(q.shape[2])).masked_fill((far < 0) | (far >= window), -math.inf).logsumexp(2)


def test_what_a_column_is_given_is_of_attention():
    cases = [case.arguments(0) for case in find("flash_column").cases]
    whole = [each for each in cases if len(each[0]) == each[2].shape[1]]  # all keys
    assert len(whole) == 3
    for k, v, q, dout, lse, delta, *_, window in whole:
        out = attention(q[None], k[None, None], v[None, None], causal=True, window=window)[0]
        assert close(lse, lse_of(q, k, window))
        assert close(delta, (dout * out).sum(2))


@each_case("choose_tile")
def test_a_tile_loads_what_the_model_counts(case):
    """Of fewer tokens, of which the last tile is short."""
    (gpu, head_dim, _), tokens, memory = case.arguments(0), 500, HBM()
    found = find("choose_tile").reference(gpu, head_dim, tokens)
    q = torch.empty(tokens, head_dim, dtype=torch.float16, device="meta")
    flash_2(memory, q, q, q, 4 * found["queries"] * head_dim * 2)  # room for four tiles of so many queries
    assert memory.loaded == found["bytes"]
    assert found["waits"] == (4 * tokens**2 * head_dim < gpu.needed * memory.loaded)


@each_case("padded_or_packed")
def test_packed_tiles_and_bytes_are_those_of_the_library(case):
    lengths, tile, d = case.arguments(0)
    bounds = [sum(lengths[:count]) for count in range(len(lengths) + 1)]
    mask, visited = PackedMask(bounds, bounds, causal=True), 0
    for rows in tiles(slice(0, bounds[-1]), tile):
        visited += len(list(tiles(mask.keys_of(rows), tile)))
    predicted = find("padded_or_packed").reference(lengths, tile, d)
    assert predicted["packed"] == visited
    one = sum(len(list(tiles(slice(0, rows.stop), tile))) for rows in tiles(slice(0, max(lengths)), tile))
    assert predicted["padded"] == one * len(lengths)


def test_an_h100_gets_the_tile_that_the_library_tries_first():
    (case,) = (case for case in find("choose_tile").cases if "an H100" in case.about and "heads of 128" in case.about)
    tile = right("choose_tile", case)
    assert (tile["queries"], tile["keys"]) == HOPPER["forward"][128][0][:2]
    assert case.arguments(0)[0].shared == SHARED[90]


SAID = [
    ("flash_row", "score of 400", (0, 5), 390, 410),
    ("flash_column", "score of 400", (4, 1), 390, 410),
    ("flash_row", "-2048", (0, 0), -2100, -2000),
    ("mended_flash", "-2048", (0, 0), -2100, -2000),
    ("flash_row", "-10^12", (0, 0), -1.2e12, -1e12),
    ("flash_column", "-10^12", (0, 0), -1.2e12, -1e12),
    ("mended_flash", "-10^12", (0, 0), -1.2e12, -1e12),
]


@pytest.mark.parametrize("name, words, place, least, most", SAID)
def test_scores_are_as_large_as_is_said(name, words, place, least, most):
    (given,) = (case.arguments(0) for case in find(name).cases if words in case.about)
    q, k = (given[2][0], given[0]) if name == "flash_column" else given[:2]
    assert least < (q @ k.T / math.sqrt(q.shape[1]))[place] < most


@pytest.mark.parametrize("name", ["flash_row", "flash_column", "mended_flash"])
def test_solutions_hold_half_of_what_is_granted_at_most(name):
    memory = find(name).targets[-1]
    (case,) = (case for case in find(name).cases if case.measured)
    assert memory.seen(find(name).right(case))[0] <= memory.most(case) / 2


PARTS = "(a_lse - finite).exp(), (b_lse - finite).exp()"
CAUSES = {
    "swapped": [PARTS, "(b_lse - finite).exp(), (a_lse - finite).exp()"],
    "larger lse alone": [PARTS, "(a_lse >= b_lse).to(lse), (a_lse < b_lse).to(lse)"],
    "powers of 2": ["logaddexp(", "logaddexp2(", ".exp()", ".exp2()"],
    "logarithms to base 2": ["out, lse", "out, lse / math.log(2)"],
    "two lse are added": ["out, lse", "out, a_lse + b_lse"],
    "who hides it": ["out, lse", "out.nan_to_num(), lse"],
}


@pytest.mark.parametrize("words", CAUSES)
def test_a_wrong_merge_is_told_its_cause(words):
    verdict = judge(solved("merge_states", *CAUSES[words]))
    assert verdict.state == "wrong" and words in str(verdict.wrong), verdict


def test_a_merge_in_32_bits_is_wrong():
    def merge_states(a, b):
        out, lse = solved("merge_states")(*([each.float() for each in pair] for pair in (a, b)))
        return out.to(a[0]), lse.to(a[1])

    assert "in float64" in str(judge(merge_states).wrong)
