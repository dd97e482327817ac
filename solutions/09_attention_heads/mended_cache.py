"""Attention with a cache, for prompts and for the tokens after them, with three bugs.

None of them shows in the prompts alone, if they are of one length. The first hides the second: where padding is
counted, all rows have the same length.
"""

import torch
import torch.nn.functional as F

from tinydist.attention import rotate
from tinydist.lab.author import Own, Part, alone, exercise, mistake

from .caches import called, copies, inputs, rows_of
from .chapter import LENT, SOLVED


def pieces(about, heads, kv_heads, d, counts, dtype=torch.float32, slots=None):
    """``counts``: for each call, how many tokens of each row are real; the rest is padding."""
    most = [max(each) for each in counts]
    made = inputs(heads, kv_heads, d, [0] * len(counts[0]), slots or 2 * sum(most) + 2, most, dtype)
    return alone(lambda: (*copies(*made), [torch.tensor(each) for each in counts]), about)


def test_cases():
    steps = [(1, 1, 1)] * 3
    yield pieces("a prompt of 4 tokens, at once", 2, 2, 4, [(4,)])
    yield pieces("two prompts of 3 tokens, and 2 steps", 4, 2, 4, [(3, 3), (1, 1), (1, 1)])
    yield pieces("a prompt of 5 tokens, in pieces of 3 and 2", 3, 1, 4, [(3,), (2,)])
    yield pieces("prompts of 4, 1 and 2 tokens, and 3 steps", 4, 2, 6, [(4, 1, 2), *steps])
    yield pieces("prompts of 3 tokens, and 2 steps that fill the cache", 2, 1, 4, [(3, 3), (1, 1), (1, 1)], slots=5)
    yield pieces("prompts of 2 and 3 tokens, and 2 and 4 more at once", 2, 1, 4, [(2, 3), (2, 4)])
    paused = [(1, 3, 2), (1, 0, 1), (2, 1, 1)]
    yield pieces(
        "prompts of 1, 3 and 2 tokens, float64, and a call without any for row 1", 6, 2, 2, paused, torch.float64
    )


def in_pieces(answer, q, k, v, cache, counts):
    """Each call with the cache as the last one left it. What stands for padding has no meaning."""
    lengths, results = {}, {}
    for number, (*piece, real) in enumerate(zip(q, k, v, counts), start=1):
        out, lengths[f"cache.lengths after call {number}"] = called(answer, *piece, cache, real)
        for row, count in enumerate(real.tolist()):
            results[f"row {row} of the result of call {number} [H, T, d]"] = out[row, :, :count]
    return lengths | rows_of(cache, sum(counts).tolist()) | results


TURNED = """\
    slots = n[:, None] + torch.arange(T)  # [B, T]: each row's own, and its positions
    q, k = rotate(q, slots), rotate(k, slots)
"""
READ = "    keys, values = cache.keys[:, :, :S], cache.values[:, :, :S]\n"
SEEN = "    seen = torch.arange(S) <= slots[:, None, :, None]  # [B, 1, T, S]\n"


@exercise(
    title="Find three bugs in attention with a cache",
    minutes=15,
    difficulty=3,
    test_cases=test_cases,
    program=in_pieces,
    targets=[
        Own("torch's attention, not the library's", "mend what is given", SOLVED, lent=LENT),
        Part("lengths", "lengths", "each row grows by counts[b], not by its padding"),
        Part(
            "cache",
            "of cache",
            "each row's keys, rotated to their positions, and values in its first lengths[b] slots; behind them "
            "anything",
        ),
        Part(
            "values",
            "result",
            "those without a cache: prompts at once, in pieces, of one length and of different ones, and steps after "
            "them",
            variants=[
                (
                    "All rows have the mask of row 0. Rows have different lengths, and the queries of each see up to "
                    "their own slots",
                    "<= slots[:, None, :, None]",
                    "<= slots[:1, None, :, None]",
                ),
                (
                    "All rows have the mask of the longest. Rows have different lengths, and the queries of each see "
                    "up to their own slots",
                    "<= slots[:, None, :, None]",
                    "<= slots.max(0).values[None, None, :, None]",
                ),
                ("A query does not see itself: its own key is among those that it sees", "<= slots", "< slots"),
            ],
        ),
    ],
    mistakes=[
        mistake(
            "Padding is counted. Of row b only the first counts[b] tokens are real",
            "    cache.lengths += counts\n",
            "    cache.lengths += T\n",
            given=True,
        ),
        mistake(
            "Queries and keys are rotated to the longest row's positions: row b has n[b] tokens, and its next one "
            "stands at n[b], counted from 0",
            TURNED,
            """\
    slots = n[:, None] + torch.arange(T)  # [B, T]
    positions = torch.arange(S - T, S)
    q, k = rotate(q, positions), rotate(k, positions)
""",
            given=True,
        ),
        mistake(
            "Query 0 sees key 0 alone, query 1 two keys: is_causal=True puts the first query beside the first key. "
            "With a past in the cache, query i stands at its position, and sees the keys up to there: give a mask",
            SEEN,
            "",
            "attn_mask=seen,",
            "is_causal=True,",
            given=True,
        ),
        mistake(
            "The tokens of each call are rotated to positions from 0 on, but stand behind those of before",
            "rotate(q, slots), rotate(k, slots)",
            "rotate(q, torch.arange(T)), rotate(k, torch.arange(T))",
        ),
        mistake(
            "Keys and values are written behind the longest row's last token: row b's next slot is n[b]",
            "[rows, :, slots]",
            "[rows, :, torch.arange(S - T, S)]",
        ),
        mistake(
            "Keys are rotated to their row's positions, and queries to the longest row's",
            "rotate(q, slots)",
            "rotate(q, torch.arange(S - T, S))",
        ),
        mistake(
            "A query sees tokens after itself, which came with it: it sees the slots up to its own, and no others",
            SEEN,
            "    seen = None\n",
        ),
        mistake(
            "n is cache.lengths itself, and grows when the lengths do: then slots are read behind the new tokens, "
            "which were never written, and in a full cache there are none. Clone it, as the program does",
            "n, T = cache.lengths.clone(), q.shape[2]",
            "n, T = cache.lengths, q.shape[2]",
            READ,
            "    S = int(n.max()) + T\n" + READ,
        ),
    ],
    hints=[
        "For a prompt alone it is right, and for two of one length. Run check: what do prompts of different lengths "
        "leave in cache.lengths?",
        "A row with n tokens writes slots n, n + 1, ... At which positions do these tokens stand? `rotate` takes "
        "positions [B, T].",
        "is_causal=True is tril() of [T, S]: with one query, it sees key 0. attn_mask takes bool [B, 1, T, S], true "
        "for what is seen: compare torch.arange(S) with each query's position.",
    ],
    why="The prefill of one prompt hides all three, and so would a test with one. A decode loop with "
    "is_causal=True raises no error, and each new token sees the first one alone. With one position for all rows, what "
    "else is in a batch changes a row's answer.",
)
def mended_cache(q, k, v, cache, counts):
    """Mend this attention with a cache: it has three bugs.

    q [B, H, T, d], k and v [B, G, T, d] are T tokens of each row, not yet rotated: of row b the first ``counts[b]`` are
    real, the rest is padding. It is called for a prompt, or piece after piece of it, and then for a token at a time,
    with the cache of exercise 2: the next real tokens stand behind those of before. Padding may be
    written behind them, as the next call writes over it, and what comes back for it has no meaning. Here unused slots
    hold numbers, never NaN, and in the last call the cache may become full.
    """
    n, T = cache.lengths.clone(), q.shape[2]
    S = int(n.max()) + T
    slots = n[:, None] + torch.arange(T)  # [B, T]: each row's own, and its positions
    q, k = rotate(q, slots), rotate(k, slots)
    rows = torch.arange(len(q))[:, None]
    cache.keys[rows, :, slots] = k.transpose(1, 2)
    cache.values[rows, :, slots] = v.transpose(1, 2)
    cache.lengths += counts
    keys, values = cache.keys[:, :, :S], cache.values[:, :, :S]
    seen = torch.arange(S) <= slots[:, None, :, None]  # [B, 1, T, S]
    return F.scaled_dot_product_attention(q, keys, values, attn_mask=seen, enable_gqa=True)
