"""A step of decoding: each row's new token is kept behind its last one, and gathers from its own past alone."""

import math

import torch

from tinydist.attention import rotate
from tinydist.lab.author import Part, alone, exercise, mistake

from .caches import NAN, VariedResults, VariedSlots, called, copies, inputs, rows_of
from .chapter import BUILT, BY_TURNS, LOW, UNSCALED, NoCopy, with_score


def rows(about, heads, kv_heads, d, lengths, slots, *, steps=3, dtype=torch.float32, unused=10.0, **more):
    """The first query of a row without tokens has a low score with its key."""
    made = inputs(heads, kv_heads, d, lengths, slots, [1] * steps, dtype, unused)
    for row in (row for row, length in enumerate(lengths) if length == 0):
        made[0][0][row, :, 0] = with_score(LOW, made[1][0][row, :, 0], heads)
    scores = len(lengths) * heads * (max(lengths) + steps)
    return alone(lambda: copies(*made), about, facts=scores, **more)


def test_cases():
    yield rows("one row of 3 tokens, multi-query", 3, 1, 4, (3,), 7, steps=2)
    yield rows("two rows of 4 tokens, multi-head", 2, 2, 6, (4, 4), 8, steps=2)
    low = f"a score of {LOW:.0e}, far below -1e9"
    yield rows(f"rows of 2, 5 and 0 tokens, grouped heads, and {low}", 4, 2, 8, (2, 5, 0), 10)
    yield rows("rows of 5, 1 and 3 tokens, float64", 6, 2, 2, (5, 1, 3), 10, dtype=torch.float64)
    yield rows("rows of 0 tokens, multi-head", 3, 3, 4, (0, 0), 6)
    yield rows("rows of 4 and 1 tokens, and NaN in the slots that are not in use", 4, 2, 4, (4, 1), 9, unused=math.nan)
    yield rows("rows of 500 and 300 tokens in 512 slots", 8, 2, 64, (500, 300), 512, measured=True)


def generate(answer, q, k, v, cache):
    """Step after step, each with the cache as the last one left it."""
    results = {}
    for number, step in enumerate(zip(q, k, v), start=1):
        results[f"the result of step {number} [B, H, 1, d]"], lengths = called(answer, *step, cache)
    return {"cache.lengths": lengths} | rows_of(cache) | results


TURNED = "rotate(q, n[:, None]), rotate(k, n[:, None])"
KEY, QUERY = "rotate(k, n[:, None])", "rotate(q, n[:, None]),"
ITS_OWN = "S = int(cache.lengths[row])"
EACH_ROW = """\
    result = torch.empty_like(q)
    for row in range(B):
        S = int(cache.lengths[row])
        keys, values = cache.keys[row, :, :S], cache.values[row, :, :S]
        scores = q[row].view(G, H // G, d) / math.sqrt(d) @ keys.mT
        result[row] = (scores.softmax(-1) @ values).view(H, 1, d)
    return result"""
AT_ONCE = """\
    S = int(cache.lengths.max())
    keys, values = cache.keys[:, :, :S], cache.values[:, :, :S]
    scores = (q.view(B, G, H // G, d) / math.sqrt(d) @ keys.mT).view(B, H, 1, S)
    unseen = torch.arange(S) > n[:, None, None, None]
    weights = scores.masked_fill(unseen, -math.inf).softmax(-1)
    return (weights.view(B, G, H // G, S) @ values).view(B, H, 1, d)"""


@exercise(
    title="Decode a token with a cache",
    minutes=35,
    difficulty=4,
    test_cases=test_cases,
    program=generate,
    targets=[
        BUILT,
        Part("lengths", "lengths", "each row is one longer after a step"),
        VariedSlots(
            "cache",
            "of cache",
            "each row's key, rotated, and value stand behind its own last token; all else stays as it was",
            variants=[
                ("The key is rotated one position too far: positions count from 0", KEY, "rotate(k, n[:, None] + 1)"),
                (
                    "The key is rotated one position too little: it stands at n",
                    KEY,
                    "rotate(k, (n[:, None] - 1).clamp(min=0))",
                ),
                (
                    "The key is rotated to the longest row's position: each row has its own",
                    KEY,
                    "rotate(k, n.max().expand(B, 1))",
                ),
                ("The key is rotated twice", KEY, f"rotate({KEY}, n[:, None])"),
                ("The value is rotated, and only queries and keys are", "v[:, :, 0]", "rotate(v, n[:, None])[:, :, 0]"),
                (
                    "The new token stands behind the longest row: each row has its own slot",
                    "[rows, :, n]",
                    "[rows, :, n.max().expand(B)]",
                ),
                ("A slot is left free: the first free one is n", "[rows, :, n]", "[rows, :, n + 1]"),
                (
                    "The key is kept, and the value is not",
                    "k[:, :, 0], v[:, :, 0]",
                    "k[:, :, 0], cache.values[rows, :, n]",
                ),
            ],
        ),
        VariedResults(
            "values",
            "result",
            variants=[
                (
                    "The query is rotated one position too far: to n, as its key, from before cache.lengths grows. If "
                    "your positions are cache.lengths itself, += 1 changes them, too: clone it",
                    QUERY,
                    "rotate(q, n[:, None] + 1),",
                ),
                ("The query is rotated one position too little: it stands at n", QUERY, "rotate(q, n[:, None] - 1),"),
                (
                    "The query is rotated to the longest row's position: each row has its own",
                    QUERY,
                    "rotate(q, n.max().expand(B, 1)),",
                ),
                ("The query is rotated twice", QUERY, "rotate(rotate(q, n[:, None]), n[:, None]),"),
                ("Scores are divided by sqrt(d), once, and not by d", "math.sqrt(d)", "d"),
                (
                    "Scores are divided by the sqrt of a head's width, d, and not of all heads' together",
                    "math.sqrt(d)",
                    "math.sqrt(H * d)",
                ),
                ("Scores are multiplied by sqrt(d), and should be divided", "/ math.sqrt(d)", "* math.sqrt(d)"),
                (
                    "A row reads one slot behind its own last token",
                    ITS_OWN,
                    "S = min(int(cache.lengths[row]) + 1, cache.keys.shape[2])",
                ),
                (
                    "A row sees as many slots as the first one: its own length says how many",
                    ITS_OWN,
                    "S = int(cache.lengths[0])",
                ),
                (
                    "A row sees as many slots as the shortest one: its own length says how many",
                    ITS_OWN,
                    "S = int(cache.lengths.min())",
                ),
                ("A token sees itself alone: its past is missing", "row, :, :S]", "row, :, S - 1 : S]"),
                ("The first token is not seen: slots count from 0", "row, :, :S]", "row, :, min(1, S - 1) : S]"),
                ("Keys are mixed, and values should be", "softmax(-1) @ values", "softmax(-1) @ keys"),
                (
                    "All heads of queries read the first head of keys and values",
                    "cache.keys[row, :, :S], cache.values[row, :, :S]",
                    "cache.keys[row, :1, :S].expand(G, -1, -1), cache.values[row, :1, :S].expand(G, -1, -1)",
                ),
                ("The weights of a query sum to 1 over the keys, and not over heads", "softmax(-1)", "softmax(-2)"),
                ("The scores are used as weights: softmax is missing", "scores.softmax(-1)", "scores"),
            ],
            holds="step after step those without a cache, each row as if it were alone: rows of one length and of "
            f"different ones, an empty one too; a score of {LOW:.0e}; NaN in slots that are not in use",
        ),
        NoCopy(
            "with 512 slots at most 8 times the bytes of the scores in each step, by the ledger: no copy of the cache"
        ),
    ],
    mistakes=[
        mistake(
            "Slots count from 0, so slot n - 1 held the last of n tokens, and is overwritten",
            "[rows, :, n]",
            "[rows, :, n - 1]",
        ),
        mistake(
            "The new token does not see itself: of n tokens before it, it sees slots 0 to n",
            ITS_OWN,
            "S = max(int(cache.lengths[row]) - 1, 1)",
        ),
        mistake("The key is not rotated to its position", TURNED, "rotate(q, n[:, None]), k"),
        mistake("The query is not rotated to its position, and the keys are", TURNED, "q, rotate(k, n[:, None])"),
        mistake(
            "A row reads slots behind its own last token: padding, which no token wrote. Its own length says what it "
            "sees, not the longest row's",
            ITS_OWN,
            "S = int(cache.lengths.max())",
        ),
        mistake(NAN, EACH_ROW, AT_ONCE),
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
        "A row with n tokens has them in slots 0 to n - 1, at positions 0 to n - 1. Where does the new one stand, and "
        "which slots does it see?",
        "Both are n: position n, slot n; and it sees slots 0 to n. n differs from row to row: cache.lengths, before "
        "you add 1 to it. `rotate` takes positions [B, 1]. If n is cache.lengths itself, `+= 1` changes it, too.",
        "Indexing with two tensors writes one slot in each row: cache.keys[torch.arange(B), :, n] = k[:, :, 0].",
        "Unused slots may hold NaN, which a weight of 0 does not hide. cache.keys[row, :, :S] is a view of what one "
        "row sees, [G, S, d]: q[row].view(G, H // G, d) meets it in one matmul, and no mask is needed.",
    ],
    why="Every server for language models runs this step, for sequences that came at different times. What it takes is "
    "the reading of the cache: if each step also copied it, that would be twice as much to write and read again.",
)
def decode_step(q, k, v, cache):
    """Attend for one new token in each row of a batch, and keep its key and value: [B, H, 1, d].

    q is [B, H, 1, d], k and v are [B, G, 1, d], not yet rotated; query head h reads head h // (H/G). ``cache.keys`` and
    ``cache.values`` are [B, G, slots, d], ``cache.lengths`` [B], a tensor of whole numbers: in row b the first
    ``cache.lengths[b]`` slots are in use, keys rotated to their positions, and what the others hold has no meaning: it
    may be NaN. There is room. All are float32, in one world float64.

    Write k, rotated, and v into the cache, make ``cache.lengths`` one longer, and return what the new tokens gather
    from their own row's tokens, themselves included. ``rotate(x, positions)`` rotates x [B, heads, T, d] to positions
    [B, T]; positions count from 0.
    """
    (B, H, _, d), G = q.shape, k.shape[1]
    # ? where does each row's new token stand?  [B]
    # ? rotate q and k; write k and v, a slot in each row
    # ? of each row: the keys and values that it sees, as views.  [G, S, d]
    # ? scores, scaled; a mean of the values.  [H, 1, d]
    n = cache.lengths.clone()  # tokens before the new one: its position, and its slot
    q, k = rotate(q, n[:, None]), rotate(k, n[:, None])
    rows = torch.arange(B)
    cache.keys[rows, :, n], cache.values[rows, :, n] = k[:, :, 0], v[:, :, 0]
    cache.lengths += 1
    result = torch.empty_like(q)
    for row in range(B):
        S = int(cache.lengths[row])
        keys, values = cache.keys[row, :, :S], cache.values[row, :, :S]
        scores = q[row].view(G, H // G, d) / math.sqrt(d) @ keys.mT
        result[row] = (scores.softmax(-1) @ values).view(H, 1, d)
    return result
