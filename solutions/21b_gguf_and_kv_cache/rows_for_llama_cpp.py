"""Weights of Hugging Face, whose RoPE rotates i with i + d/2, in the order of one that rotates neighbors."""

import torch

from tinydist.attention.rotary import rotate
from tinydist.lab.author import Own, Values, Wrong, alone, exercise, mistake

from .chapter import SOLVED, numbers

TOKENS = 6


def case(heads, kv_heads, head_dim, about):
    def arguments():
        dim = heads * head_dim
        query, key, value = (numbers(n * head_dim, dim, seed=n) / dim**0.5 for n in (heads, kv_heads, kv_heads))
        return query, key, value.flip(0), heads, kv_heads

    each = f"{heads} head{'s' * (heads > 1)} of {head_dim}, {kv_heads} of keys and values"
    return alone(arguments, f"{each}: {about}")


def test_cases():
    yield case(1, 1, 2, "a single pair")
    yield case(1, 1, 8, "a single head")
    yield case(4, 4, 8, "as many of both")
    yield case(4, 2, 8, "grouped heads")
    yield case(4, 1, 16, "one for all queries")
    yield case(6, 3, 4, "pairs of a short head")


def attend(answer, query, key, value, heads, kv_heads):
    """Scores and outputs of the weights that were returned, with a RoPE that rotates neighbors."""
    found = answer(query, key, value, heads, kv_heads)
    if not isinstance(found, tuple | list) or [getattr(each, "shape", None) for each in found] != [
        query.shape,
        key.shape,
        value.shape,
    ]:
        raise Wrong("it should return (query, key, value), of the shapes that they came in")
    x, positions = numbers(TOKENS, query.shape[1], seed=0), torch.arange(TOKENS)
    q, k, v = (
        (x @ weight.T).unflatten(-1, (n, -1)).transpose(0, 1) for weight, n in zip(found, (heads, kv_heads, kv_heads))
    )  # [heads, T, d]
    q, k = (rotate(each.unsqueeze(0), positions).squeeze(0) for each in (q, k))
    k, v = (each.repeat_interleave(heads // kv_heads, 0) for each in (k, v))
    scores = q @ k.mT
    return {"the scores of queries and keys": scores, "the output of attention": scores.softmax(-1) @ v}


@exercise(
    title="Weights of Hugging Face for llama.cpp",
    minutes=20,
    difficulty=2,
    test_cases=test_cases,
    program=attend,
    targets=[
        Own("your own order", "here it is a permutation, and yours", SOLVED),
        Values(
            "scores and outputs of attention at positions 0 to 5 where neighbors are rotated; 1 to 6 heads of 2 to 16, "
            "1 to 4 of keys and values"
        ),
    ],
    mistakes=[
        mistake("That is the way back, from neighbors to halves of a head", "(heads, 2, -1)", "(heads, -1, 2)"),
        mistake(
            "Each head has its own pairs: split rows into heads first, and each head into its halves",
            "(heads, 2, -1)",
            "(1, 2, -1)",
        ),
        mistake("The key has rows for kv_heads, not for heads", "in_pairs(key, kv_heads)", "in_pairs(key, heads)"),
        mistake(
            "Keys are rotated as well, in the same pairs as queries", "in_pairs(key, kv_heads), value", "key, value"
        ),
        mistake(
            "Values are not rotated: their rows stay where they are",
            "kv_heads), value",
            "kv_heads), in_pairs(value, kv_heads)",
        ),
        mistake(
            "Of a pair, i comes first and i + d/2 second: the other way round it is rotated backwards",
            ".transpose(1, 2)",
            ".flip(1).transpose(1, 2)",
        ),
        mistake(
            "A weight is [out, in], and heads are cut from what comes out: reorder rows, not columns",
            "weight.unflatten(0, (heads, 2, -1)).transpose(1, 2).flatten(0, 2)",
            "weight.unflatten(1, (heads, 2, -1)).transpose(2, 3).flatten(1, 3)",
        ),
    ],
    hints=[
        "For a head of 8, the rows 0 to 7 are rotated in pairs (0, 4), (1, 5), (2, 6), (3, 7). In which order must "
        "they stand so that these are neighbors?",
        "0, 4, 1, 5, 2, 6, 3, 7: see the rows of a head as [2, d/2], and read that by columns.",
        "`weight.unflatten(0, (heads, 2, -1))` is [heads, 2, d/2, D]: swap its dims 1 and 2 and flatten. Not all three "
        "weights need it.",
    ],
    why="A score is a sum over pairs, in any order, as long as queries and keys have the same one. So nothing but the "
    "order of rows tells the two kinds of RoPE apart. llama.cpp's converter does this for weights of Hugging Face "
    "(`permute`); if it is left out, names, shapes and the first token are right, and nothing raises an error.",
)
def rows_for_llama_cpp(query, key, value, heads, kv_heads):
    """Return (query, key, value) for a RoPE that rotates neighbors, rows 2 i and 2 i + 1 of each head.

    ``query`` [heads d, D], ``key`` and ``value`` [kv_heads d, D], float64: weights of linear layers, one head after
    the other, d rows each. They were trained with a RoPE that rotates row i of a head together with row i + d/2, by an
    angle that depends on i and on the position. Attention must stay what it was. The arguments stay as they are.
    """

    def in_pairs(weight, heads):
        # ? The rows of each head, in another order.
        return weight.unflatten(0, (heads, 2, -1)).transpose(1, 2).flatten(0, 2)

    # ? Which of the three need it?
    return in_pairs(query, heads), in_pairs(key, kv_heads), value
