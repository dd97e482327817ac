"""A step of decoding for one head, over keys and values that lie in blocks."""

import math

import torch

from tinydist.lab.author import Memory, Part, exercise, mistake

from .chapter import BY_HAND
from .in_blocks import HIGH, LOW, decoded, step

FLOAT = 4  # bytes
PARTS = 256 * 1024  # bytes: of lists of what each block gives


def test_cases():
    yield step("one sequence of 2 tokens, a block of 4", 4, [2])
    yield step("3 tokens in blocks of 4: the new one fills the block", 4, [3])
    yield step("8 tokens in blocks of 4, and values of 3 numbers", 4, [8], e=3)
    yield step("blocks of one token", 1, [5, 2], e=2)
    yield step("sequences of 7, 3 and 0 tokens, blocks of 4", 4, [7, 3, 0], e=6)
    yield step("9 and 6 tokens, two blocks of 3 in common, float64", 3, [9, 6], common=2, dtype=torch.float64)
    yield step("5 and 12 tokens, two blocks of 5 to spare", 5, [5, 12], spare=2)
    yield step(f"no tokens, and a score of {LOW:.0e}", 4, [0, 0], score=LOW)
    yield step(f"9 tokens in blocks of 4, and a score of {HIGH:,.0f} for the new one", 4, [9], score=HIGH)
    yield step("3 tokens, a block of 5, a window of 2", 5, [3], window=2)
    yield step("14, 4 and 10 tokens, blocks of 4, a window of 5", 4, [14, 4, 10], window=5)
    yield step("11 and 1 tokens, blocks of 4, a window of 4", 4, [11, 1], window=4, spare=1)
    yield step("a window of one token", 2, [3, 4], window=1)
    yield step("300 tokens in blocks of 16", 16, [300], d=64, e=64, measured=True, facts=4 * 16 * 128 * FLOAT)


BLOCK, SLOTS = "block, slot = table[n // size], n % size", "max(first - i * size, 0), min(n + 1 - i * size, size)"
WRITTEN = "keys[block, slot], values[block, slot] = key, value"
MERGED = "mixed = mixed * old + weights @ values[table[i], slots]"


class NoCopy(Memory):
    def general(self, trial, right):
        return (
            "Keys are copied: indexing by a list or a tensor of blocks, cat and stack do that. A block and a slice of "
            "it, keys[table[i], a:b], is a view. Merge what each block gives into what the others gave"
        )


@exercise(
    title="Decode through a table of blocks",
    minutes=35,
    difficulty=4,
    test_cases=test_cases,
    program=decoded,
    targets=[
        BY_HAND,
        Part(
            "cache",
            "[blocks",
            "each new key and value in the next slot of its own sequence, and all else as it was",
            variants=[
                ("Nothing is written: the new key and value go into the next slot of the sequence", WRITTEN, "pass"),
                ("The new key is written, and its value is not", WRITTEN, "keys[block, slot] = key"),
                ("The new value is written, and its key is not", WRITTEN, "values[block, slot] = value"),
                (
                    "After n tokens the next is in slot n % size: here it is one further",
                    BLOCK,
                    "block, slot = table[min((n + 1) // size, len(table) - 1)], (n + 1) % size",
                ),
                (
                    "The block is right, and the slot is that of a token n, from 0: n % size",
                    BLOCK,
                    "block, slot = table[n // size], 0",
                ),
                ("All sequences write into the block of the first", BLOCK, "block, slot = tables[0][0], n % size"),
            ],
        ),
        Part(
            "values",
            "result",
            "those of a softmax over the tokens in the window: block sizes 1 to 5, some shared; "
            f"scores of {LOW:.0e} and {HIGH:,.0f}",
            variants=[
                ("The scores are not divided by sqrt(d)", " / math.sqrt(len(query))", ""),
                ("The scores are divided by d, and not by its root", "math.sqrt(len(query))", "len(query)"),
                (
                    "The values are not divided by the sum of the weights",
                    "out.append(mixed / total)",
                    "out.append(mixed)",
                ),
                (
                    "The new token does not see itself: it is written, and is the last that is seen",
                    SLOTS,
                    "max(first - i * size, 0), min(n - i * size, size)",
                    "scores.max()",
                    "scores.max() if len(scores) else most",
                    "torch.tensor(-math.inf)",
                    "torch.tensor(-1e30)",
                ),
                (
                    "The window is one token too wide: it has `window` tokens, the new one included",
                    "max(0, n + 1 - window)",
                    "max(0, n - window)",
                ),
                (
                    "The window is one token too narrow: it has `window` tokens, the new one included",
                    "max(0, n + 1 - window)",
                    "min(n, max(0, n + 2 - window))",
                ),
                (
                    "The values that were weighed before are not rescaled: with a larger maximum, multiply them by "
                    "exp(before - now)",
                    "mixed * old +",
                    "mixed +",
                ),
                (
                    "The sum of the weights before is not rescaled: with a larger maximum, multiply it by exp(before "
                    "- now)",
                    "total * old +",
                    "total +",
                ),
                (
                    "No maximum is subtracted, or one that is not the largest: exp overflows, or all are 0",
                    "torch.maximum(most, scores.max())",
                    "torch.zeros(())",
                ),
                (
                    "This is the last block alone: the maximum, the sum and the values go on from block to block",
                    "total * old +",
                    "0 * total +",
                    "mixed * old +",
                    "0 * mixed +",
                ),
                (
                    "The weights are all alike: they are the exps of the scores",
                    "(scores - now).exp()",
                    "torch.ones_like(scores)",
                    "total * old",
                    "total",
                    "mixed * old",
                    "mixed",
                ),
                (
                    "The first block of the window is left out: a part of it is seen",
                    "range(first // size,",
                    "range(-(-first // size),",
                    "torch.zeros(()), torch",
                    "torch.zeros(()) + 1e-30, torch",
                ),
            ],
        ),
        NoCopy(
            "with 300 tokens at most the bytes of 4 blocks: keys and values are read where they lie",
            most=lambda case: case.facts,
            slack=PARTS,
        ),
    ],
    mistakes=[
        mistake(
            "It is written into the table's last block. Blocks behind may be there to spare: token n is in n // size",
            BLOCK,
            "block, slot = table[-1], n % size",
        ),
        mistake(
            "It is written into the block whose number is n // size. That is a place in the table: the number stands "
            "there",
            BLOCK,
            "block, slot = n // size, n % size",
        ),
        mistake(
            "Slots count from 0: after n tokens it is slot n % size, and n - 1 is taken",
            BLOCK,
            "block, slot = table[max(n - 1, 0) // size], max(n - 1, 0) % size",
        ),
        mistake(
            "The last block is read to its end, where no token has written: it has n + 1 - i size tokens",
            SLOTS,
            "max(first - i * size, 0), size",
        ),
        mistake(
            "Blocks are read in the order in which they lie, and not in the table's",
            "table[i], slots",
            "i, slots",
        ),
        mistake(
            "The first block of the window is read from its beginning: some of its tokens are older than the window",
            "max(first - i * size, 0),",
            "0,",
        ),
        mistake(
            "What the blocks before gave was weighed by their maximum. With a larger one, multiply it by "
            "exp(before - now)",
            MERGED,
            "mixed = mixed + weights @ values[table[i], slots]",
            "total = total * old",
            "total = total",
        ),
        mistake(
            "Each block has weights that sum to 1, and all blocks count as much: one with larger scores counts more",
            MERGED,
            "mixed = mixed + weights @ values[table[i], slots] / weights.sum()",
            "total = total * old + weights.sum()",
            "total = total + 1",
        ),
    ],
    hints=[
        "Where is token n of a sequence? In which block of its table, and which slot? All block sizes and lengths "
        "follow from that, n = size - 1 and n = size, too.",
        "It sees tokens first = max(0, n + 1 - window) to n: from block first // size of the table to block n // size. "
        "Of the first and the last of them only a part.",
        "Go through the blocks with three numbers: the largest score so far, the sum of exp(score - largest), and the "
        "values weighed by the same.",
        "Where a block has a larger score, sum and values are multiplied by exp(old largest - new largest). Begin with "
        "-inf, 0 and 0; exp(-inf) is 0.",
    ],
    why="A kernel that reads through the table is all that paging costs attention: 20 to 26 % in the paper. A server "
    "that gathered the keys first would move each of them three times, in every layer, for every token: read, written, "
    "and read again.",
)
def decode_by_table(q, k, v, keys, values, tables, lengths, window):
    """Attend for one new token in each of B sequences, whose keys and values lie in blocks: [B, e]. One head.

    q and k are [B, d], v is [B, e]; ``keys`` is [blocks, size, d], ``values`` [blocks, size, e], of all sequences.
    Sequence b had ``lengths[b]`` tokens before: token i is in block ``tables[b][i // size]``, slot i % size. Write k
    and v there, as the next token. Each new token sees the last ``window`` tokens of its sequence, itself included.

    The table has the new token's block, and may have more, for later. Blocks whose tokens nobody sees any more were
    given back: None stands for them. Others may be in several tables. What is in slots without a token has no meaning.
    Read keys and values where they lie, a block at a time: there is no room for a copy of them.
    """
    size, out = keys.shape[1], []
    for query, key, value, table, n in zip(q, k, v, tables, lengths):
        # ? write the new token
        # ? block by block: the largest score so far, the sum of the weights, the values weighed.  [], [], [e]
        block, slot = table[n // size], n % size
        keys[block, slot], values[block, slot] = key, value
        first = max(0, n + 1 - window)
        most, total, mixed = torch.tensor(-math.inf), torch.zeros(()), torch.zeros_like(value)
        for i in range(first // size, n // size + 1):
            slots = slice(max(first - i * size, 0), min(n + 1 - i * size, size))
            scores = keys[table[i], slots] @ query / math.sqrt(len(query))
            now = torch.maximum(most, scores.max())
            old, weights = (most - now).exp(), (scores - now).exp()
            total = total * old + weights.sum()
            mixed = mixed * old + weights @ values[table[i], slots]
            most = now
        out.append(mixed / total)
    return torch.stack(out)
