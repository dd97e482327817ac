"""The exercises on attention heads: what they are judged by is right, and passing has room."""

from functools import partial

import pytest
import torch
import torch.nn.functional as F

import tinydist
from tinydist.attention import (
    PUBLISHED,
    WINDOWED,
    LatentAttention,
    WindowKVCache,
    Yarn,
    attention,
    bytes_per_sequence,
    rotate,
)
from tinydist.attention.published_scores import SCORES
from tinydist.attention.rotary import frequencies
from tinydist.syllabus.registry import find

DTYPES = {"fp32": torch.float32, "fp16": torch.float16, "fp8": torch.float8_e4m3fn}


def each_case(name):
    return pytest.mark.parametrize("case", find(name).cases, ids=str)


def right(name, case):
    """What the solution is given and what comes of it."""
    return case.arguments(0), find(name).right(case).returned[0]


def without_cache(q, k, v):
    """Of one row: what its last queries gather from all of its tokens, keys turned already."""
    seen = torch.ones(q.shape[1], k.shape[1], dtype=torch.bool).tril(k.shape[1] - q.shape[1])
    return F.scaled_dot_product_attention(q, k, v, attn_mask=seen, enable_gqa=True)


# The solutions, in the worlds of their checks.


@each_case("latent_attention")
def test_latents_are_attended_as_the_library_does(case):
    (q, rows, up, r), got = right("latent_attention", case)
    d = q.shape[3] - r
    layer = LatentAttention(4, len(up), latent=up.shape[2], rotary_dim=r, head_dim=d, value_dim=up.shape[1] - d)
    layer.up.weight.data = up.flatten(0, 1)
    attend = partial(attention, causal=True, scale=q.shape[3] ** -0.5)
    for way in (layer._plain, layer._absorbed):
        torch.testing.assert_close(got, way(attend, q, rows[:, None]), rtol=1e-3, atol=1e-4)


@each_case("latent_attention")
def test_the_cheaper_way_is_taken(case):
    (q, rows, up, r), _ = right("latent_attention", case)
    (B, H, T, _), S, (_, more, c) = q.shape, rows.shape[1], up.shape
    flops = find("latent_attention").targets[-1].seen(find("latent_attention").right(case))
    made, absorbed = S * c * more + T * S * (more + r), T * c * more + T * S * (2 * c + r)
    assert flops == 2 * B * H * min(made, absorbed)


@each_case("decode_step")
def test_a_step_is_attention_without_a_cache(case):
    (q, k, v, cache), got = right("decode_step", case)
    for row, length in enumerate(cache.lengths.tolist()):
        new = torch.arange(length, length + len(q))
        steps, keys, values = (torch.cat([each[row : row + 1] for each in some], 2) for some in (q, k, v))
        keys = torch.cat([cache.keys[row, :, :length], rotate(keys, new)[0]], 1)
        values = torch.cat([cache.values[row, :, :length], values[0]], 1)
        results = torch.stack([got[f"the result of step {i + 1} [B, H, 1, d]"][row] for i in range(len(q))])
        wanted = without_cache(rotate(steps, new)[0], keys, values)
        torch.testing.assert_close(results.squeeze(2).transpose(0, 1), wanted, rtol=1e-4, atol=1e-5)
        torch.testing.assert_close(got[f"row {row} of cache.keys [slots, G, d]"][: new[-1] + 1], keys.transpose(0, 1))
        assert got["cache.lengths"][row] == length + len(q)


@each_case("window_step")
def test_a_ring_gathers_as_the_librarys(case):
    (q, k, v, cache), got = right("window_step", case)
    B, G, window, d = cache.keys.shape
    ring = WindowKVCache(B, G, window, d, cache.keys.dtype)
    ring.keys.copy_(cache.keys), ring.values.copy_(cache.values)
    ring.lengths = cache.lengths.tolist()
    for number, (query, key, value) in enumerate(zip(q, k, v), start=1):
        at = ring.positions(1)
        keys, values = ring.keep(rotate(key, at), value)
        wanted = torch.cat([attend_one(rotate(query, at), keys, values, row, ring) for row in range(B)])
        torch.testing.assert_close(got[f"the result of step {number} [B, H, 1, d]"], wanted, rtol=1e-4, atol=1e-5)


def attend_one(query, keys, values, row, ring):
    """One row alone, so that what other rows' unused slots hold does not matter."""
    used, one = min(ring.lengths[row], ring.window), slice(row, row + 1)
    return attention(query[one], keys[one, :, :used], values[one, :, :used])


@each_case("mended_cache")
def test_prompts_are_attended_as_without_a_cache(case):
    (q, k, v, _, counts), got = right("mended_cache", case)
    for row, mine in enumerate(torch.stack(counts, 1).tolist()):
        real = [torch.cat([each[row : row + 1, :, :n] for each, n in zip(some, mine)], 2) for some in (q, k, v)]
        positions = torch.arange(sum(mine))
        wanted = without_cache(rotate(real[0], positions)[0], rotate(real[1], positions)[0], real[2][0])
        results = [got[f"row {row} of the result of call {i + 1} [H, T, d]"] for i in range(len(mine))]
        torch.testing.assert_close(torch.cat(results, 1), wanted, rtol=1e-4, atol=1e-5)


@each_case("plan_cache")
def test_what_is_predicted_is_what_the_ledger_counts(case):
    (model, tokens, gigabytes), got = right("plan_cache", case)
    head_dim = model.hidden // model.heads

    windows = [
        None if not model.window or layer % model.every == 0 else model.window for layer in range(1, model.layers + 1)
    ]

    def program(tokens):
        sizes = [tokens if window is None else min(tokens, window) for window in windows]
        return [WindowKVCache(1, model.kv_heads, size, head_dim, DTYPES[model.dtype]) for size in sizes]

    held, longer = (
        tinydist.launch(program, 1, many, backend="simulated", fake=True).memory[0].peak
        for many in (tokens, tokens + 1)
    )
    assert (got["bytes of the next token"], got["GiB a sequence"] * 2**30) == (longer - held, held)
    assert WINDOWED.get(model.name) in (None, (windows, model.kv_heads, head_dim))
    assert got["batch"] * held <= gigabytes * 10**9 < (got["batch"] + 1) * held
    assert PUBLISHED.get(model.name) in (None, (model.layers, model.kv_heads, head_dim))


@each_case("rotate_longer")
def test_fast_and_slow_pairs_are_rotated_as_the_library_does(case):
    """In between its mix is linear in the pair, as in the published code, and the paper's in the rotations."""
    (x, positions, base, trained, factor), got = right("rotate_longer", case)
    yarn = Yarn(factor, context=trained, base=base)
    assert got["scale"] == pytest.approx(yarn.sharpening)
    half = x.shape[-1] // 2
    neighbors = rotate(x.unflatten(-1, (2, half)).mT.flatten(-2), positions, yarn)
    wanted = neighbors.unflatten(-1, (half, 2)).mT.flatten(-2)
    rotations = trained * frequencies(2 * half, base) / (2 * torch.pi)
    same = (rotations <= 1) | (rotations >= 32) | torch.full([half], factor == 1)
    same[0] &= rotations[0] > 1  # the published code never slows down the first pair
    same = same.repeat(2)
    assert same.any()
    torch.testing.assert_close(got["rotated"][..., same], wanted[..., same], rtol=1e-3, atol=1e-3)


def test_scores_are_read_as_published():
    case = next(case for case in find("read_scores").cases if "what was published" in case.about)
    _, got = right("read_scores", case)
    assert got["mean"] == pytest.approx([each.mean for each in SCORES.values()])
    assert got["worst"] == pytest.approx([each.worst[1] for each in SCORES.values()])
    assert got["choice"] == "MLA, 250B"


# The worlds are what they are meant to be.


def test_models_are_as_published():
    """In GiB for the tokens that are asked for, and no sequence of the longest fits."""
    found = {case.arguments(0)[0].name: right("plan_cache", case)[1] for case in find("plan_cache").cases[9:]}
    assert {name: plan["GiB a sequence"] for name, plan in found.items()} == {
        "Llama 2 7B": 2,
        "Llama 2 70B": 1.25,
        "Llama 3 8B": 1,
        "Llama 3 70B": 2.5,
        "Llama 3.1 405B": 63,
        "OPT 13B": 1.5625,
        "Gemma 3 27B": bytes_per_sequence(131_072, *WINDOWED["Gemma 3 27B"]) / 2**30,
        "gpt-oss 120B": bytes_per_sequence(131_072, *WINDOWED["gpt-oss 120B"]) / 2**30,
    }
    assert [name for name, plan in found.items() if plan["batch"] == 0] == ["Llama 3.1 405B"]


def test_low_scores_are_below_what_is_taken_for_infinite():
    low = next(case for case in find("latent_attention").cases if "a score of" in case.about)
    q, latents, _, r = low.arguments(0)
    of_latents = (q[:, :, 0, -r:] @ latents[:, 0, -r:].mT) / q.shape[3] ** 0.5
    decoded = next(case for case in find("decode_step").cases if "a score of" in case.about)
    (first, *_), (key, *_), _, cache = decoded.arguments(0)
    row = cache.lengths.tolist().index(0)
    of_step = first[row, :, 0].unflatten(0, (2, 2)) * key[row] / 8**0.5
    for scores in (of_latents, of_step.sum(-1)):
        torch.testing.assert_close(scores, torch.full_like(scores, -1e12))


def test_the_program_to_mend_is_right_for_a_prompt_alone():
    """Its bugs show where a past is in the cache: then in all but the first call."""
    exercise = find("mended_cache")
    bugs = [each for each in exercise.mistakes if each.given]
    prompt, *_ = exercise.cases
    given, solved = (exercise.run(prompt, *each).returned[0] for each in (bugs, ()))
    assert all(torch.equal(given[name], solved[name]) for name in solved)
    for case in exercise.cases[1:3]:
        given, solved = (exercise.run(case, *each).returned[0] for each in (bugs, ()))
        wrong = [name for name in solved if not torch.allclose(given[name], solved[name])]
        assert wrong and all("the result of call" in name and "call 1" not in name for name in wrong)


def test_the_solution_holds_half_of_what_is_granted():
    exercise = find("decode_step")
    memory = exercise.targets[-1]
    *_, case = exercise.cases
    (held,) = memory.seen(exercise.right(case))
    assert case.measured and 0 < held <= memory.most(case) / 2
