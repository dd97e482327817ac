"""How many sequences a GPU serves at once: for its memory, in blocks, and for a latency."""

from random import Random
from typing import NamedTuple

from tinydist.lab.author import Own, Part, alone, exercise, mistake

from .chapter import SOLVED

GB = 10**9


class Model(NamedTuple):
    name: str
    parameters: int
    layers: int
    kv_heads: int  # of keys and values
    head_dim: int
    weight: int = 2  # bytes of each
    kept: int = 2  # bytes of each number in the cache


class GPU(NamedTuple):
    memory: float  # bytes that weights and cache may have
    bandwidth: float  # bytes a second


TINY, SMALL = Model("3 layers", 1000, 3, 2, 5), GPU(40_000, 1e6)
EXACT = GPU(12_560, 2**20)  # of both kinds of room, two sequences take the last byte
WIDE = Model("7 layers, fp32 weights, a cache of 8 bits", 2000, 7, 3, 4, 4, 1)
A100_40, A100, H100 = GPU(36 * GB, 1.555e12), GPU(73.6 * GB, 2.039e12), GPU(73.6 * GB, 3.35e12)
# Published: Zhang et al. 2022, OPT; Touvron et al. 2023, Llama 2; Llama Team 2024, The Llama 3 Herd.
OPT = Model("OPT 13B", 12_853_463_040, 40, 40, 128)
LLAMA_2 = Model("Llama 2 7B", 6_738_415_616, 32, 32, 128)
LLAMA_3 = Model("Llama 3 8B", 8_030_261_248, 32, 8, 128)
LARGE = Model("Llama 3 70B", 70_553_706_496, 80, 8, 128)

CASES = [  # model, GPU, block size, tokens in common, tokens of its own, seconds
    (WIDE, SMALL, 1, 0, 20, 1.0),
    (TINY, SMALL, 1, 0, 30, 1.0),
    (TINY, SMALL, 4, 0, 30, 1.0),
    (TINY, SMALL, 4, 24, 30, 1.0),
    (TINY, SMALL, 8, 27, 40, 1.0),
    (TINY, SMALL, 4, 24, 30, 0.019),
    (TINY, SMALL, 4, 40, 3, 0.0153),
    (TINY, EXACT, 4, 24, 30, 14960 / 2**20),
    (WIDE, SMALL, 4, 13, 50, 0.0401),
    (WIDE, SMALL, 4, 13, 50, 0.0079),
    (TINY, GPU(1999, 1e6), 4, 13, 50, 0.5),
    (TINY, GPU(9000, 1e6), 4, 80, 9, 0.5),
    (OPT, A100_40, 16, 0, 499, 0.05),
    (LLAMA_2, A100, 16, 2000, 100, 0.02),
    (LLAMA_3, H100, 32, 6000, 500, 0.015),
    (LLAMA_3._replace(name="Llama 3 8B, all in 8 bits", weight=1, kept=1), H100, 16, 0, 8192, 0.01),
    (LARGE, H100, 16, 0, 8192, 0.05),
]


def drawn(seed):
    """Any sizes: memory for some sequences, and time for some."""
    draw = Random(seed)
    kinds = draw.choice((1, 2, 4)), draw.choice((1, 2, 4))
    model = Model("drawn", draw.randint(100, 5000), *(draw.randint(1, 9) for _ in range(3)), *kinds)
    size, shared, own = draw.choice((1, 3, 4, 16)), draw.randint(0, 60), draw.randint(1, 40)
    weights, token = model.parameters * model.weight, 2 * model.layers * model.kv_heads * model.head_dim * model.kept
    read = weights + (shared + own) * token * draw.uniform(0.5, 30)
    memory = weights + int((shared + own + 2 * size) * token * draw.uniform(0.5, 30))
    return model, GPU(memory, 1e6), size, shared, own, round(read / 1e6, 4)


def test_cases():
    for each in [*CASES, *map(drawn, range(24))]:
        model, gpu, size, shared, own, goal = each
        memory = f"{gpu.memory / GB:g} GB" if gpu.memory > GB else f"{gpu.memory:,} bytes"
        about = f"{shared:,} + {own:,} tokens in blocks of {size}, {memory}, {1000 * goal:g} ms"
        yield alone(lambda each=each: each, f"{model.name}, {about}")


class Predicted(Part):
    """The right number is not told."""

    def __init__(self, name, key, holds, *variants):
        super().__init__(name, key, holds, tell=False, variants=variants)

    def general(self, trial, right):
        (mine,), (its,) = (self.seen(each).values() for each in (trial, right))
        return f"There are {'fewer' if mine > its else 'more'}"


MEMORY = "in_memory = max(0, pool - shared // size) // blocks"
BLOCKS, TOKEN = "-(-(shared % size + own) // size)", "2 * model.layers * model.kv_heads * model.head_dim * model.kept"
A_TOKEN = [
    (
        "It is as if a token had half of its bytes: it leaves a key and a value, in each layer and KV head",
        TOKEN,
        TOKEN.removeprefix("2 * "),
    ),
    (
        "A token leaves a key and a value in each layer: it is counted in one layer",
        TOKEN,
        TOKEN.replace("model.layers * ", ""),
    ),
    (
        "A token leaves a key and a value for each KV head: one of them is counted",
        TOKEN,
        TOKEN.replace("model.kv_heads * ", ""),
    ),
    ("A key has head_dim numbers: one is counted", TOKEN, TOKEN.replace("model.head_dim * ", "")),
    (
        "A number of the cache has `kept` bytes, and not as many as one of the weights",
        TOKEN,
        TOKEN.replace("kept", "weight"),
    ),
    ("A number of the cache has `kept` bytes: 2 are counted", TOKEN, TOKEN.replace("model.kept", "2")),
    ("A number of the cache has `kept` bytes: 1 is counted", TOKEN, TOKEN.replace(" * model.kept", "")),
    ("A parameter has `weight` bytes: 2 are counted", "model.parameters * model.weight", "model.parameters * 2"),
    ("A parameter has `weight` bytes: 1 is counted", "model.parameters * model.weight", "model.parameters"),
    (
        "A parameter has `weight` bytes, and not as many as a number of the cache",
        "model.parameters * model.weight",
        "model.parameters * model.kept",
    ),
]
ROOM = [
    *A_TOKEN,
    ("The weights are in the memory, too", "(gpu.memory - weights)", "gpu.memory"),
    ("The common blocks are in the memory, too, once", "pool - shared // size", "pool"),
    (
        "The common blocks are there once, and not for each sequence",
        "// blocks\n",
        "// (blocks + shared // size)\n",
        "pool - shared // size",
        "pool",
    ),
    (
        "Common blocks are whole ones: what is left of the common tokens is in each one's own, and counted here",
        "pool - shared // size",
        "pool - -(-shared // size)",
    ),
    (
        "Blocks are taken whole, so whole ones are counted: tokens are, here",
        MEMORY,
        "in_memory = max(0, int((gpu.memory - weights - shared // size * size * token) // (token * own)))",
    ),
    (
        "Blocks are taken whole, so whole ones are counted: tokens are, here",
        MEMORY,
        "in_memory = max(0, int((gpu.memory - weights - shared * token) // (token * own)))",
    ),
    ("This is the number of blocks, and not of sequences", "// blocks\n", "// 1\n"),
    (
        "The last sequence has to fit as a whole: round down",
        MEMORY,
        MEMORY.replace("max(0, pool - shared // size) // blocks", "-(-max(0, pool - shared // size) // blocks)"),
    ),
    (
        "What takes the last byte fits, too",
        "pool = int((gpu.memory - weights)",
        "pool = int((gpu.memory - weights - 1)",
    ),
]
TIME = [
    *A_TOKEN,
    (
        "Common blocks are read for each sequence anew",
        "(goal * gpu.bandwidth - weights) // read",
        "(goal * gpu.bandwidth - weights - shared // size * size * token) // (read - shared // size * size * token)",
    ),
    (
        "Common tokens are read for each sequence anew",
        "(goal * gpu.bandwidth - weights) // read",
        "(goal * gpu.bandwidth - weights - shared * token) // (own * token)",
    ),
    (
        "The weights are read once for all sequences, and not for each",
        "(goal * gpu.bandwidth - weights) // read",
        "goal * gpu.bandwidth // (weights + read)",
    ),
    (
        "The time must hold all of the last sequence: round down",
        "int((goal * gpu.bandwidth - weights) // read)",
        "int(-(-(goal * gpu.bandwidth - weights) // read))",
    ),
    (
        "The token that is written is no token that is read: so many are in the cache",
        "read = (shared + own)",
        "read = (shared + own + 1)",
    ),
]
RATE = [
    ("A pass takes what it reads, and not the whole of `goal`", "gpu.bandwidth / (weights + batch * read)", "1 / goal"),
    ("These are the tokens of one sequence: all together are asked for", "rate = batch *", "rate = (batch > 0) *"),
    ("The weights are read in each pass, too", "(weights + batch * read)", "max(1, batch * read)"),
    ("Each sequence's keys and values are read, and not those of one", "(weights + batch * read)", "(weights + read)"),
    (
        "The weights are read once for all sequences, and not for each",
        "(weights + batch * read)",
        "max(1, batch * (weights + read))",
    ),
    (
        "A token a second is not the seconds of a token: this is the time of a pass",
        "batch * gpu.bandwidth / (weights + batch * read)",
        "(weights + batch * read) / gpu.bandwidth",
    ),
]


@exercise(
    title="How many at once, in memory and in time",
    minutes=20,
    difficulty=3,
    test_cases=test_cases,
    targets=[
        Own("your own arithmetic", "here it is arithmetic, and yours", SOLVED),
        Predicted(
            "blocks",
            "blocks",
            "of one sequence, without those that all have in common",
            (
                "The last tokens in common that do not fill a block are in each one's own, and are counted twice here",
                BLOCKS,
                "-(-(shared % size) // size) - (-own // size)",
            ),
            (
                "The token that is written next has no room yet: so many are in the cache",
                BLOCKS,
                "-(-(shared % size + own + 1) // size)",
            ),
        ),
        Predicted(
            "memory", "in memory", "the most whose blocks fit beside the weights. Common ones are there once", *ROOM
        ),
        Predicted("time", "in time", "the most with which a pass reads all it has to in the time", *TIME),
        Predicted(
            "batch",
            "batch",
            "what both allow",
            ("This is what the memory allows: the time does, too", "min(in_memory, in_time)", "in_memory"),
            ("This is what the time allows: the memory does, too", "min(in_memory, in_time)", "in_time"),
        ),
        Predicted("rate", "tokens a second", "of all together, with that batch", *RATE),
    ],
    mistakes=[
        mistake(
            "The last block need not be full, and it is one: round up",
            "-(-(shared % size + own) // size)",
            "(shared % size + own) // size",
        ),
        mistake(
            "The last tokens in common do not fill a block: it cannot be shared, as each writes its own behind them",
            "-(-(shared % size + own) // size)",
            "-(-own // size)",
        ),
        mistake(
            "The blocks that all have in common are counted for each",
            "-(-(shared % size + own) // size)",
            "-(-(shared + own) // size)",
        ),
        mistake(
            "Blocks are taken whole, so whole ones are counted: with tokens, too many fit",
            MEMORY,
            "in_memory = max(0, int((gpu.memory - weights) / token - shared // size * size) // (shared % size + own))",
        ),
        mistake(
            "The weights are read in each pass, too: once for all",
            "goal * gpu.bandwidth - weights",
            "goal * gpu.bandwidth",
        ),
        mistake(
            "Shared blocks are stored once, and read once for each: a sequence's query meets all of its keys",
            "read = (shared + own) * token",
            "read = own * token",
        ),
        mistake(
            "Slots without a token are not read: what a sequence reads is its tokens, and not its blocks",
            "read = (shared + own) * token",
            "read = (shared // size + blocks) * size * token",
        ),
        mistake(
            "It has to fit, and to be in time: the smaller of both",
            "min(in_memory, in_time)",
            "max(in_memory, in_time)",
        ),
    ],
    hints=[
        "A token leaves a key and a value in each layer. A block has size times that: how many fit beside the weights?",
        "Of the tokens in common shared // size blocks are whole. What is left of them goes into each one's own "
        "blocks, before its own tokens.",
        "A pass reads the weights once, and for each sequence the keys and values of all its tokens: shared or not. "
        "goal times bandwidth are the bytes that it may read.",
    ],
    why="Memory and time bound the batch for different reasons. A prefix in common makes room for more sequences, and "
    "none of them reads a byte less: then it is the latency that says how many, and more memory helps nobody.",
)
def plan_batch(model, gpu, size, shared, own, goal):
    """Plan how many sequences a GPU decodes at once, so that all fit, and a token takes at most ``goal`` seconds.

    All begin with the same ``shared`` tokens and have ``own`` more, each other ones, at least 1; so many are in the
    cache, in blocks of ``size`` tokens. Blocks that hold nothing but common tokens are there once.

    A pass writes a token for each. It reads all weights once, and of each sequence the keys and values of all its
    tokens, those of common blocks for each anew; the bytes by ``gpu.bandwidth`` are its time. ``gpu.memory`` is for
    weights and blocks. A model has ``parameters`` of ``weight`` bytes, ``layers``, ``kv_heads`` of keys and values,
    each of ``head_dim`` numbers, of ``kept`` bytes in the cache.

    Return {"blocks": ..., "in memory": ..., "in time": ..., "batch": ..., "tokens a second": ...}: the blocks that are
    a sequence's own; how many sequences fit into the memory, and how many into the time, each by itself, 0 if none
    does; the batch, that does both; and the tokens that all of it together write in a second.
    """
    # ? bytes of the weights, of a token, of what a sequence reads
    # ? how many fit into the memory, and how many into the time?
    weights = model.parameters * model.weight
    token = 2 * model.layers * model.kv_heads * model.head_dim * model.kept
    read = (shared + own) * token
    pool = int((gpu.memory - weights) // (size * token))
    blocks = -(-(shared % size + own) // size)
    in_memory = max(0, pool - shared // size) // blocks
    in_time = max(0, int((goal * gpu.bandwidth - weights) // read))
    batch = min(in_memory, in_time)
    rate = batch * gpu.bandwidth / (weights + batch * read)
    return {"blocks": blocks, "in memory": in_memory, "in time": in_time, "batch": batch, "tokens a second": rate}
