"""A step of decoding in a layer with a sliding window: the cache is a ring, for rows of different lengths."""

import math

import torch

from tinydist.attention import rotate
from tinydist.lab.author import Part, alone, exercise, mistake

from .caches import VariedResults, VariedSlots, called, copies, inputs, rows_of
from .chapter import BUILT, BY_TURNS, UNSCALED, NoCopy


def rows(about, heads, kv_heads, d, lengths, window, *, steps, dtype=torch.float32, unused=10.0, loud=1, **more):
    """``loud``: by how much the queries are larger."""
    made = inputs(heads, kv_heads, d, lengths, window, [1] * steps, dtype, unused)
    for q in made[0]:
        q *= loud
    return alone(lambda: copies(*made), about, facts=len(lengths) * heads * window, **more)


def test_cases():
    yield rows("one row of 2 tokens, a window of 4, multi-query", 3, 1, 4, (2,), 4, steps=1)
    yield rows("one row of 3 tokens, a window of 4, 4 steps", 2, 2, 4, (3,), 4, steps=4)
    yield rows("rows of 9 and 1 tokens, a window of 4, grouped heads", 4, 2, 6, (9, 1), 4, steps=6)
    yield rows("rows of 0 and 5 tokens, a window of 1", 2, 1, 4, (0, 5), 1, steps=2)
    yield rows("rows of 7, 0 and 2 tokens, a window of 3, float64", 6, 2, 2, (7, 0, 2), 3, steps=4, dtype=torch.float64)
    yield rows("rows of 8 and 1 tokens, and NaN in unused slots", 4, 2, 4, (8, 1), 5, steps=2, unused=math.nan)
    yield rows("rows of 6 and 2 tokens, scores of several hundred", 4, 2, 4, (6, 2), 4, steps=2, loud=400)
    yield rows("rows of 900 and 300 tokens, a window of 512", 8, 2, 64, (900, 300), 512, steps=1, measured=True)


def generate(answer, q, k, v, cache):
    """Step after step, each with the cache as the last one left it."""
    results = {}
    for number, step in enumerate(zip(q, k, v), start=1):
        results[f"the result of step {number} [B, H, 1, d]"], lengths = called(answer, *step, cache)
    return {"cache.lengths": lengths} | rows_of(cache) | results


KEY, QUERY = "rotate(k, n[:, None])", "rotate(q, n[:, None]),"
ROTATED = "rotate(q, n[:, None]), rotate(k, n[:, None])"
SLOT = "slot = n % window"
USED = "used = min(int(n[row]) + 1, window)"


@exercise(
    title="Decode a token with a ring",
    minutes=25,
    difficulty=3,
    test_cases=test_cases,
    program=generate,
    targets=[
        BUILT,
        Part("lengths", "lengths", "each row is one longer after a step, forgotten tokens counted"),
        VariedSlots(
            "cache",
            "of cache",
            "each row's token n, its key rotated, stands in slot n % window; all else stays",
            variants=[
                ("The key is rotated one position too far: positions count from 0", KEY, "rotate(k, n[:, None] + 1)"),
                ("The key is not rotated", KEY, "k"),
                ("The key is rotated twice", KEY, f"rotate({KEY}, n[:, None])"),
                ("The value is rotated, and only queries and keys are", "v[:, :, 0]", "rotate(v, n[:, None])[:, :, 0]"),
                ("Token n lies in slot n % window, and this is one further", SLOT, "slot = (n + 1) % window"),
                ("Token n lies in slot n % window, and this is one before", SLOT, "slot = (n - 1) % window"),
                ("Each row has its own slot: this is that of the longest", SLOT, "slot = (n.max() % window).expand(B)"),
                (
                    "The key is kept, and the value is not",
                    "k[:, :, 0], v[:, :, 0]",
                    "k[:, :, 0], cache.values[rows, :, slot]",
                ),
            ],
        ),
        VariedResults(
            "values",
            "result",
            variants=[
                (
                    "A ring that is full is in use behind the new token's slot, too: there are the tokens before, "
                    "which this leaves out",
                    USED,
                    "used = int(slot[row]) + 1",
                ),
                (
                    "A token sees itself and window - 1 before it: this is one less",
                    USED,
                    "used = max(1, min(int(n[row]) + 1, window - 1))",
                ),
                (
                    "A row that has n tokens and the new one uses n + 1 slots, and not n",
                    USED,
                    "used = max(1, min(int(n[row]), window))",
                ),
                (
                    "A row reads a slot that no token wrote: it has n + 1 tokens with the new one",
                    USED,
                    "used = min(int(n[row]) + 2, window)",
                ),
                (
                    "A row sees as many slots as the first one: its own length says how many",
                    USED,
                    "used = min(int(n[0]) + 1, window)",
                ),
                (
                    "A row sees as many slots as the shortest one: its own length says how many",
                    USED,
                    "used = min(int(n.min()) + 1, window)",
                ),
                (
                    "The query is rotated one position too far: to n, as its key, from before cache.lengths grows. If "
                    "your positions are cache.lengths itself, += 1 changes them, too: clone it",
                    QUERY,
                    "rotate(q, n[:, None] + 1),",
                ),
                ("The query is rotated to its slot: its position is n", QUERY, "rotate(q, slot[:, None]),"),
                (
                    "The query is rotated to the end of the window: its position is n",
                    QUERY,
                    "rotate(q, n.clamp(max=window - 1)[:, None]),",
                ),
                (
                    "The query is rotated to the longest row's position: each row has its own",
                    QUERY,
                    "rotate(q, n.max().expand(B, 1)),",
                ),
                ("Scores are divided by sqrt(d), once, and not by d", "math.sqrt(d)", "d"),
                ("Scores are multiplied by sqrt(d), and should be divided", "/ math.sqrt(d)", "* math.sqrt(d)"),
                ("Keys are mixed, and values should be", "softmax(-1) @ values", "softmax(-1) @ keys"),
                (
                    "A token sees itself alone: its window is missing",
                    "row, :, :used]",
                    "row, :, slot[row] : slot[row] + 1]",
                ),
                ("The weights of a query sum to 1 over the keys, and not over heads", "softmax(-1)", "softmax(-2)"),
            ],
            holds="step after step those of attention with the mask of the window: before the ring is full and after, "
            "rows of different lengths, a window of 1; scores of several hundred; NaN in slots that are not in use",
        ),
        NoCopy("with a window of 512 at most 8 times the bytes of the scores, by the ledger: no copy of the ring"),
    ],
    mistakes=[
        mistake(
            "The ring is full and token n is written over the newest one, in the last slot. The oldest is in slot "
            "n % window",
            SLOT,
            "slot = n.clamp(max=window - 1)",
        ),
        mistake(
            "The key is rotated to its slot. A slot says where a token lies; its position is n, however often the ring "
            "went round",
            KEY,
            "rotate(k, slot[:, None])",
        ),
        mistake("The query is not rotated to its position, and the keys are", ROTATED, "q, rotate(k, n[:, None])"),
        mistake(
            "A row whose ring is not full yet reads slots that no token wrote: it has n + 1 tokens with the new one",
            USED,
            "used = window",
        ),
        mistake(
            "A row sees as many slots as the longest row: its own length says how many are in use",
            USED,
            "used = min(int(n.max()) + 1, window)",
        ),
        mistake(
            "cache.lengths stops at the window. It counts all tokens so far: the next position follows from it",
            "cache.lengths += 1",
            "cache.lengths.add_(1).clamp_(max=window)",
        ),
        mistake(UNSCALED, " / math.sqrt(d)", ""),
        mistake(
            BY_TURNS,
            "scores = q[row].view(G, H // G, d) / math.sqrt(d) @ keys.mT",
            "scores = q[row].view(H // G, G, d).transpose(0, 1) / math.sqrt(d) @ keys.mT",
            "(scores.softmax(-1) @ values).view(H, 1, d)",
            "(scores.softmax(-1) @ values).transpose(0, 1).reshape(H, 1, d)",
        ),
    ],
    hints=[
        "Where does token n lie, and which token lay there before? At which position does it stand?",
        "Slot n % window, position n. What the ring holds once it is written is what the query may see. Is a "
        "mask needed?",
        "Before the ring is full, a row uses n + 1 slots, from slot 0 on; afterwards all. cache.keys[row, :, :used] is "
        "a view.",
        "Three lengths differ: the tokens so far, cache.lengths; the slot, n % window; and the slots in use, "
        "min(n + 1, window). n is from before you add 1.",
    ],
    why="In Gemma 3 five layers of six decode like this: however long the sequence, they hold and read 1,024 tokens. "
    "The order in the ring does not matter, since each key was rotated to its position when it was written.",
)
def window_step(q, k, v, cache):
    """Attend for one new token in each row of a batch, in a layer with a sliding window: [B, H, 1, d].

    q is [B, H, 1, d], k and v are [B, G, 1, d], not yet rotated; query head h reads head h // (H/G). ``cache.keys`` and
    ``cache.values`` are rings [B, G, window, d]: token n of row b lies in slot n % window, its key rotated to position
    n. ``cache.lengths`` [B], int64, has the tokens of each row so far, also those that are no longer there. What unused
    slots hold has no meaning: it may be NaN. All are float32, in one world float64.

    Write k, rotated, and v into the ring, over the oldest token if it is full, make ``cache.lengths`` one longer, and
    return what the new tokens gather: from themselves and the window - 1 tokens of their row before them.
    """
    (B, H, _, d), G, window = q.shape, k.shape[1], cache.keys.shape[2]
    # ? the position and the slot of each row's new token  [B]
    # ? rotate q and k; write k and v, a slot in each row
    # ? of each row: the slots in use, as views; scores, scaled; a mean of the values
    n = cache.lengths.clone()
    slot = n % window
    q, k = rotate(q, n[:, None]), rotate(k, n[:, None])
    rows = torch.arange(B)
    cache.keys[rows, :, slot], cache.values[rows, :, slot] = k[:, :, 0], v[:, :, 0]
    cache.lengths += 1
    result = torch.empty_like(q)
    for row in range(B):
        used = min(int(n[row]) + 1, window)
        keys, values = cache.keys[row, :, :used], cache.values[row, :, :used]
        scores = q[row].view(G, H // G, d) / math.sqrt(d) @ keys.mT
        result[row] = (scores.softmax(-1) @ values).view(H, 1, d)
    return result
