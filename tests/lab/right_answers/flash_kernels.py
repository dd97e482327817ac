"""Other right answers to the exercises of 10b_flash_kernels: they must pass."""

import math
from contextlib import suppress

import torch
import torch.nn.functional as F
from lab.registered import others
from torch.nn.attention import SDPBackend, sdpa_kernel

from tinydist.lab.triton_answers import tl

RIGHT_ANSWERS, right = others()


@right("flash_kernel")
def powers_of_two_and_keys_turned(q, k, v, out, T, S, scale, causal: tl.constexpr, D: tl.constexpr, M: tl.constexpr,
                                  N: tl.constexpr):  # fmt: skip
    """The keys are loaded as [D, N]; powers are of 2, and the queries are scaled."""
    first = tl.program_id(0) * M
    rows, width = first + tl.arange(0, M), tl.arange(0, D)
    inside = rows[:, None] < T
    queries = tl.load(q + rows[:, None] * D + width[None, :], mask=inside, other=0.0) * scale * 1.4426950408889634
    top, total = tl.full([M], -1e30, tl.float32), tl.zeros([M], tl.float32)
    output = tl.zeros([M, D], tl.float32)
    offset = S - T
    for start in range(0, tl.minimum(S, first + M + offset) if causal else S, N):
        columns = start + tl.arange(0, N)
        keys = tl.load(k + columns[None, :] * D + width[:, None], mask=columns[None, :] < S, other=0.0)
        scores = tl.dot(queries, keys)
        scores = tl.where(columns[None, :] < S, scores, -1e30)
        if causal:
            scores = tl.where(columns[None, :] - offset > rows[:, None], -1e30, scores)
        new = tl.maximum(top, tl.max(scores, 1))
        weights, factor = tl.exp2(scores - new[:, None]), tl.exp2(top - new)
        values = tl.load(v + columns[:, None] * D + width[None, :], mask=columns[:, None] < S, other=0.0)
        output = tl.dot(weights, values, output * factor[:, None])
        total, top = total * factor + tl.sum(weights, 1), new
    tl.store(out + rows[:, None] * D + width[None, :], output / total[:, None], mask=inside)


@right("flash_kernel")
def masked_where_a_mask_is_needed(q, k, v, out, T, S, scale, causal: tl.constexpr, D: tl.constexpr, M: tl.constexpr,
                                  N: tl.constexpr):  # fmt: skip
    """Tiles come from the last to the first; the output is divided in each round, as FlashAttention-1 does."""
    rows = tl.program_id(0) * M + tl.arange(0, M)
    width = tl.arange(0, D)[None, :]
    queries = tl.load(q + rows[:, None] * D + width, mask=(rows < T)[:, None], other=0.0)
    lse = tl.full([M], float("-inf"), tl.float32)
    output = tl.zeros([M, D], tl.float32)
    end = S
    if causal:
        end = tl.minimum(S, (tl.program_id(0) + 1) * M + S - T)
    rounds = (end + N - 1) // N
    for count in range(0, rounds):
        columns = (rounds - 1 - count) * N + tl.arange(0, N)
        at = columns[:, None] * D + width
        keys = tl.load(k + at, mask=(columns < S)[:, None], other=0.0)
        values = tl.load(v + at, mask=(columns < S)[:, None], other=0.0)
        scores = tl.dot(queries, tl.trans(keys)) * scale
        hidden = (columns >= S)[None, :] | (causal & (columns[None, :] > rows[:, None] + S - T))
        scores = tl.where(hidden, float("-inf"), scores)
        top = tl.maximum(tl.maximum(lse, tl.max(scores, 1)), -3e38)
        new = top + tl.log(tl.exp(lse - top) + tl.sum(tl.exp(scores - top[:, None]), 1))
        new = tl.maximum(new, -3e38)
        output = output * tl.exp(lse - new)[:, None] + tl.dot(tl.exp(scores - new[:, None]), values)
        lse = new
    tl.store(out + rows[:, None] * D + width, output, mask=(rows < T)[:, None])


@right("choose_tile")
def from_the_most_queries_down(gpu, head_dim, tokens):
    """The first number of queries with which any keys fit, and with which half of them would be more programs."""
    for queries in (each for each in (1024, 512, 256, 128, 64, 32, 16) if each < 2 * tokens):
        for keys in range(1024, 0, -16):
            in_shared = 2 * queries * head_dim + 4 * gpu.stages * keys * head_dim
            in_registers = 4 * queries * head_dim + 4 * queries * keys
            if in_shared <= gpu.shared and in_registers <= gpu.registers:
                nbytes = 2 * tokens * head_dim * (1 + 2 * math.ceil(tokens / queries))
                waits = 4 * tokens**2 * head_dim < gpu.needed * nbytes
                return {"waits": waits, "bytes": nbytes, "keys": keys, "queries": queries}


@right("choose_tile")
def room_by_division(gpu, head_dim, tokens):
    """How many keys there is room for, for each number of queries."""
    best = None
    for queries in 2 ** torch.arange(4, 11):
        room = (gpu.shared / (2 * head_dim) - queries) / (2 * gpu.stages)
        room = min(room, gpu.registers / (4 * queries) - head_dim, 1024)
        if room >= 16 and queries < 2 * tokens:
            best = int(queries), int(room // 16 * 16)
    programs = len(range(0, tokens, best[0]))
    nbytes = 2 * head_dim * tokens + programs * 2 * (2 * head_dim * tokens)
    waits = 4 * tokens**2 * head_dim / nbytes < gpu.needed
    return {"queries": best[0], "keys": best[1], "bytes": nbytes, "waits": waits}


@right("choose_tile")
def one_program_at_a_time(gpu, head_dim, tokens):
    found = {}
    for queries in (16, 32, 64, 128, 256, 512, 1024):
        for keys in range(16, 1040, 16):
            shared = 2 * head_dim * (queries + 2 * gpu.stages * keys)
            fits = shared <= gpu.shared and 4 * queries * (head_dim + keys) <= gpu.registers
            if fits and queries < 2 * tokens:
                found[queries] = keys
    queries = max(found)
    numbers = 0
    for start in range(0, tokens, queries):
        numbers += (min(start + queries, tokens) - start) * head_dim + 2 * tokens * head_dim
    waits = not 4 * tokens * tokens * head_dim / (2 * numbers) >= gpu.needed
    return {"queries": queries, "keys": found[queries], "bytes": 2 * numbers, "waits": waits}


@right("time_of_versions")
def by_totals(version, gpu, heads, tokens, head_dim):
    """From the time of all work, on all SMs, and the part of the rounds in which SMs have work."""
    rows = -(-tokens // 128) * 128
    blocks = heads if version < 2 else heads * rows // 128
    scores = heads * rows * tokens
    times = {"matmul": 4 * scores * head_dim / gpu.matmul, "exp": scores / gpu.exp * (0.75 if version > 3 else 1)}
    together = max if version > 2 else sum
    idle = -(-blocks // gpu.sms) * gpu.sms / blocks
    exchanged = 16 * 128 * head_dim + 16 * 2 * 128 if version < 2 else 0
    waits = max(times, key=times.get)
    return dict(seconds=together(times.values()) * idle, waits=waits, blocks=blocks, exchanged=exchanged)


@right("first_backend")
def one_after_the_other(wanted, q, k, v, options):
    if not wanted:
        return None, None
    first, *others = wanted
    try:
        with sdpa_kernel([first]):
            out = F.scaled_dot_product_attention(q, k, v, **options)
    except RuntimeError:
        return one_after_the_other(others, q, k, v, options)
    return out, first.name


@right("first_backend")
def asked_before(wanted, q, k, v, options):
    """With PyTorch's own question, which runs nothing."""
    for backend in wanted:
        with sdpa_kernel(backend), suppress(RuntimeError):
            if SDPBackend(torch._fused_sdp_choice(q, k, v, **options)) == backend:
                return F.scaled_dot_product_attention(q, k, v, **options), backend.name
    return None, None
