"""What sequences of different lengths cost, padded to the longest or laid end to end: tiles, and bytes."""

import math

from tinydist.lab.author import Own, Part, alone, exercise, mistake

from .chapter import BY_HAND, SOLVED

CASES = [
    ([8, 8], 4, 16),
    ([12, 4, 8], 4, 16),
    ([512, 96, 40, 200, 64, 24, 72, 16], 64, 64),
    ([5, 3, 9, 1, 6], 4, 8),
    ([1, 1, 1, 1, 1, 1], 4, 8),
    ([30], 8, 32),
    ([7, 50, 2], 16, 128),
]


def test_cases():
    for lengths, tile, d in CASES:
        tokens = ", ".join(map(str, lengths))
        yield alone(
            lambda each=(lengths, tile, d): (list(each[0]), *each[1:]), f"{tokens} tokens, tiles of {tile}, d={d}"
        )


TILES = "last - start // tile + 1"


@exercise(
    title="Padded or packed",
    minutes=15,
    difficulty=2,
    test_cases=test_cases,
    targets=[
        Own("predicted, not asked of the library", BY_HAND, SOLVED),
        Part("padded", "padded", "the tiles that are visited if all sequences are padded to the longest", tell=False),
        Part(
            "packed",
            "packed",
            "the same, if they are laid end to end; with 8 and 8 tokens in tiles of 4: 6",
            tell=False,
        ),
        Part("moved", "moved", "the bytes of scores and weights that three kernels move, forward, padded", tell=False),
        Part("kept", "kept", "the bytes that flash attention keeps from forward to backward, packed", tell=False),
    ],
    mistakes=[
        mistake(
            "A causal mask leaves half of the square and the diagonal: n (n + 1) / 2 tiles, where n is rounded up",
            "n * (n + 1) // 2",
            "n * n",
        ),
        mistake(
            "Each sequence has its own tiles here. Tiles begin at multiples of `tile` in the whole row, so one may "
            "hold two sequences, and a sequence may begin inside of one",
            "packed += " + TILES,
            "packed = sum(math.ceil(each / tile) * (math.ceil(each / tile) + 1) // 2 for each in lengths)",
        ),
        mistake(
            "This is the causal mask of the whole row: a tile of queries needs no keys before the sequence of its "
            "first query",
            TILES,
            "last + 1",
        ),
        mistake(
            "A tile of queries begins at the sequence of its first query, not at that of its last",
            "if each <= first",
            "if each < first + tile",
        ),
        mistake(
            "Scores are written and read, and so are weights: four squares",
            "4 * 2 * len(lengths)",
            "2 * 2 * len(lengths)",
        ),
        mistake(
            "Padded, each square is as large as that of the longest sequence",
            "len(lengths) * longest**2",
            "sum(each**2 for each in lengths)",
        ),
        mistake("The log-sum-exp is kept in 32 bits: 4 bytes for each query", "2 * 4 * d + 4", "2 * 4 * d + 2"),
        mistake("q, k, v and the output are kept: backward computes delta from the output", "2 * 4 * d", "2 * 3 * d"),
    ],
    hints=[
        "Padded: n = ceil(longest / tile), the same triangle for each sequence. Packed: one row of sum(lengths) "
        "tokens, and ceil(sum / tile) tiles of queries.",
        "Where does the sequence of the first query of a tile begin? From that key's tile on, up to its own on the "
        "diagonal, tiles are visited.",
        "Three kernels write and read a square of scores, then one of weights, in 2 bytes a number, for each sequence.",
        "Flash attention keeps four vectors of d numbers for each token, in 2 bytes, and one number of 4 bytes.",
    ],
    why="Padding costs the square of the longest sequence for every other one. That is why training code packs "
    "sequences and passes cu_seqlens, and why a mask that only hides the padding saves nothing.",
)
def padded_or_packed(lengths, tile, d):
    """Predict what causal attention of one head costs for sequences of different lengths, padded or packed.

    ``lengths`` are their tokens. Tiles have ``tile`` queries and as many keys; the last may be short. Packed, the
    sequences are laid end to end in one row, tiles begin at multiples of ``tile`` in this row, and a tile is visited if
    it holds a key between the first of the sequence of the tile's first query and the tile's last query. Vectors have d
    numbers; they, scores and weights are in 16 bits, the log-sum-exp is in 32.

    Return {"padded": ..., "packed": ..., "moved": ..., "kept": ...}: the tiles that are visited, padded to the longest,
    and packed; the bytes of scores and weights that three kernels move in a forward pass, padded; and the bytes that
    flash attention keeps for backward, packed.
    """
    # ? Padded: how many tiles has one sequence?
    # ? Packed: for each tile of queries, from which tile of keys to which?
    # ? How often is a square moved? What is kept for each token?
    longest, tokens = max(lengths), sum(lengths)
    n = math.ceil(longest / tile)
    padded = len(lengths) * (n * (n + 1) // 2)
    starts = [sum(lengths[:count]) for count in range(len(lengths))]
    packed = 0
    for last, first in enumerate(range(0, tokens, tile)):
        start = max(each for each in starts if each <= first)
        packed += last - start // tile + 1
    moved = 4 * 2 * len(lengths) * longest**2
    kept = tokens * (2 * 4 * d + 4)
    return {"padded": padded, "packed": packed, "moved": moved, "kept": kept}
