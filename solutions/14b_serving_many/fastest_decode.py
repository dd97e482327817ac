"""How many GPUs, and how many drafted tokens, give a user the most tokens a second."""

from random import Random
from typing import NamedTuple

from tinydist.lab.author import Own, Part, alone, exercise, mistake

from .chapter import SOLVED

GB, US = 10**9, 1e-6


class Model(NamedTuple):
    name: str
    parameters: int  # of 2 bytes
    layers: int
    kv_heads: int  # of keys and values
    head_dim: int  # numbers of 2 bytes


class GPU(NamedTuple):
    memory: float  # bytes that weights and cache may have
    bandwidth: float  # bytes a second
    flops: float  # a second
    starts: float  # seconds that starting the kernels of a layer takes
    all_reduce: dict  # ranks -> seconds of a small one


# Published: Touvron et al. 2023, Llama 2; Llama Team 2024, The Llama 3 Herd.
LLAMA_2 = Model("Llama 2 7B", 6_738_415_616, 32, 32, 128)
LARGE_2 = Model("Llama 2 70B", 68_976_648_192, 80, 8, 128)
LLAMA_3 = Model("Llama 3 8B", 8_030_261_248, 32, 8, 128)
DIRECT, SLOW = {2: 9 * US, 4: 10 * US, 8: 11 * US}, {2: 30 * US, 4: 45 * US, 8: 75 * US}
A100 = GPU(72 * GB, 1.732e12, 312e12, 28.6 * US, DIRECT)
NCCL = A100._replace(all_reduce=SLOW)
H100 = GPU(72 * GB, 3.35e12, 989e12, 35.6 * US, DIRECT)
SMALL = Model("small", 10_000, 2, 2, 5)
FEW = GPU(1e6, 1e6, 1e8, 1e-4, {2: 1e-3, 4: 2e-3, 8: 4e-3})

CASES = [  # model, GPU, batch, tokens in the cache of each, kept, seconds of a pass of the draft
    (SMALL, FEW, 1, 100, 0.5, 1.0),
    (SMALL, FEW._replace(all_reduce={2: 1e-2, 4: 1e-2, 8: 1e-2}), 1, 100, 0.5, 1.0),
    (SMALL, FEW, 1, 2000, 0.5, 1.0),
    (SMALL, FEW._replace(memory=15_000), 1, 100, 0.5, 1.0),
    (SMALL, FEW, 1, 100, 0.8, 4e-4),
    (SMALL, FEW._replace(flops=1e5), 4, 100, 0.8, 4e-4),
    (LLAMA_2, A100, 1, 105, 0.7, 1.0),
    (LLAMA_2, NCCL, 1, 105, 0.7, 1.0),
    (LLAMA_2, A100, 1, 105, 0.8, 3e-4),
    (LLAMA_3, H100, 1, 1000, 0.7, 4e-4),
    (LLAMA_3, H100, 256, 1000, 0.7, 8e-4),
    (LLAMA_3, H100, 128, 3000, 0.9, 6e-4),
    (LARGE_2, A100, 1, 499, 0.75, 2e-3),
    (LARGE_2, NCCL, 32, 4000, 0.6, 3e-3),
]


def drawn(seed):
    """Any sizes, so that the cache, the weights, arithmetic or latency may be the most of it."""
    draw = Random(seed)
    model = Model("drawn", draw.randint(5_000, 50_000), draw.randint(1, 6), draw.choice((1, 2, 4, 8)), 4)
    two = 10 ** draw.uniform(-4, -2)
    all_reduce = {2: two, 4: draw.uniform(1, 2) * two, 8: draw.uniform(2, 5) * two}
    gpu = GPU(draw.choice((1e6, 2e5)), 1e6, 10 ** draw.uniform(5, 8), draw.uniform(0, 1e-3), all_reduce)
    batch, context = draw.randint(1, 8), draw.randint(1, 500)
    return model, gpu, batch, context, round(draw.uniform(0.3, 0.95), 2), draw.uniform(1e-4, 4e-2)


def test_cases():
    for each in [*CASES, *map(drawn, range(24))]:
        model, gpu, batch, context, kept, draft = each
        about = f"{batch} x {context:,} tokens, {kept:.0%} kept, a draft of {1000 * draft:.3g} ms"
        more = f"all-reduces of {gpu.all_reduce[2] / US:.3g} us on 2, {gpu.flops:.1e} FLOP/s, {gpu.memory / GB:g} GB"
        yield alone(lambda each=each: each, f"{model.name}, {about}, {more}")


CACHE = "max(model.kv_heads / ranks, 1)"

NUMBERS = "batch * context * 2 * model.layers"
VARIANTS = [
    (
        "These are the most ranks: the fastest are asked for",
        "ranks = min(fits, key=lambda each: seconds(each, 1))",
        "ranks = fits[-1]",
    ),
    (
        "Reading the weights and computing run at the same time: the longer counts, and not both",
        "max(reading, computing)",
        "(reading + computing)",
    ),
    (
        "A pass waits for what it reads or computes, whichever is longer: this is the shorter",
        "max(reading, computing)",
        "min(reading, computing)",
    ),
    (
        "Computing is left out: with many sequences it takes longer than to read the weights",
        "max(reading, computing)",
        "reading",
    ),
    (
        "Reading the weights is left out: with few sequences it takes longer than computing",
        "max(reading, computing)",
        "computing",
    ),
    (
        "The cache is read besides the longer of the two, and not at the same time",
        "max(reading, computing) + cache(ranks) / gpu.bandwidth",
        "max(reading + cache(ranks) / gpu.bandwidth, computing)",
    ),
    (
        "Each sequence of the batch is computed: here it is one",
        "model.parameters * batch * new",
        "model.parameters * new",
    ),
    ("The FLOPs are shared by the ranks, too", "* new / ranks / gpu.flops", "* new / gpu.flops"),
    (
        "The weights are shared by the ranks: each reads its part",
        "weights / ranks / gpu.bandwidth",
        "weights / gpu.bandwidth",
    ),
    ("A parameter has 2 bytes", "weights = 2 * model.parameters", "weights = model.parameters"),
    ("A parameter has 2 bytes, and not 4", "weights = 2 * model.parameters", "weights = 4 * model.parameters"),
    ("A parameter and token are 2 FLOPs", "computing = 2 *", "computing = 1 *"),
    (
        "The cache has half of its bytes here: keys and values, of 2 bytes a number",
        NUMBERS,
        "batch * context * model.layers",
    ),
    ("The cache has twice its bytes here: keys and values, of 2 bytes a number", NUMBERS, NUMBERS.replace("2", "4")),
    ("The cache is that of one layer: each has its own", NUMBERS, "batch * context * 2"),
    ("The cache is that of one sequence: each of the batch has its own", NUMBERS, NUMBERS.removeprefix("batch * ")),
    ("Its cache is a rank's own heads alone: KV heads are shared by the ranks", CACHE, "model.kv_heads"),
    ("The cache is not read: each pass reads a rank's part of it", " + cache(ranks) / gpu.bandwidth", ""),
    ("Starts are for each layer, and not once", "model.layers * gpu.starts", "gpu.starts"),
    ("Starts are left out: each layer has them", "model.layers * gpu.starts", "0"),
    ("All-reduces are for each layer, and not once", "2 * model.layers * gpu.all_reduce", "2 * gpu.all_reduce"),
    ("All-reduces are left out: a layer has two of them", "2 * model.layers * gpu.all_reduce", "0 * gpu.all_reduce"),
    (
        "These are the seconds on the ranks that are fastest: those on the fewest that fit are asked for",
        '"alone": seconds(fits[0], 1)',
        '"alone": seconds(ranks, 1)',
    ),
    (
        "These are the seconds on one rank, whether it fits or not",
        '"alone": seconds(fits[0], 1)',
        '"alone": seconds(1, 1)',
    ),
    (
        "These are the fewest ranks that fit: the fastest are asked for",
        "ranks = min(fits, key=lambda each: seconds(each, 1))",
        "ranks = fits[0]",
    ),
    ("Up to 8 may be drafted, and 8 as well", "range(9)", "range(8)"),
    ("None may be drafted as well: 0 is a choice, too", "range(9)", "range(1, 9)"),
    (
        "To check K drafts a pass computes K + 1 tokens, and K here",
        "seconds(ranks, drafts + 1)",
        "seconds(ranks, max(1, drafts))",
    ),
    (
        "To check K drafts takes one pass of K + 1 tokens, and not K + 1 passes",
        "seconds(ranks, drafts + 1)",
        "(drafts + 1) * seconds(ranks, 1)",
    ),
    ("A round gives one token besides the drafts that are kept", "range(drafts + 1))\n", "range(1, drafts + 1))\n"),
    ("The draft's passes take time, too: one for each token that it drafts", "drafts * draft + ", ""),
    ("The draft makes no pass more than it drafts tokens", "drafts * draft + ", "(drafts + 1) * draft + "),
    (
        "Only the last kept draft is counted: a round gives all that are kept before it, too",
        "sum(kept**each for each in range(drafts + 1))",
        "1 + drafts * kept**drafts",
    ),
    (
        "These are the tokens of the whole batch: those of one sequence are asked for",
        "return tokens /",
        "return batch * tokens /",
    ),
    (
        "These are the seconds of a token, and not tokens a second",
        '"tokens a second": rate(ranks, drafts)',
        '"tokens a second": 1 / rate(ranks, drafts)',
    ),
    ("This is the rate without drafts", '"tokens a second": rate(ranks, drafts)', '"tokens a second": rate(ranks, 0)'),
]


class Predicted(Part):
    """What is right is not told."""

    def __init__(self, name, key, holds):
        super().__init__(name, key, holds, tell=False, variants=VARIANTS)


@exercise(
    title="How many GPUs, and how many drafts",
    minutes=30,
    difficulty=4,
    test_cases=test_cases,
    targets=[
        Own("your own arithmetic", "here it is arithmetic, and yours", SOLVED),
        Predicted("alone", "alone", "seconds of a token on the fewest GPUs whose memory is enough, without drafts"),
        Predicted("ranks", "ranks", "those with which a token is fastest, without drafts"),
        Predicted("drafts", "drafts", "as many as are best on these ranks"),
        Predicted("rate", "tokens a second", "of one sequence, on these ranks with these drafts"),
    ],
    mistakes=[
        mistake(
            "One GPU waits for no all-reduce",
            "all_reduce.get(ranks, 0.0)",
            "all_reduce[max(ranks, 2)]",
        ),
        mistake(
            "A layer has two all-reduces, one behind attention and one behind the MLP",
            "2 * model.layers * gpu.all_reduce",
            "model.layers * gpu.all_reduce",
        ),
        mistake(
            "With more ranks than heads of keys and values each rank still holds and reads one head",
            CACHE,
            "model.kv_heads / ranks",
        ),
        mistake(
            "Fewer GPUs than hold the weights and the cache were taken",
            "if weights / ranks + cache(ranks) <= gpu.memory",
            "if weights / ranks <= gpu.memory",
        ),
        mistake(
            "To check K drafts a pass computes K + 1 tokens of each sequence, and that is arithmetic: with many "
            "sequences it takes longer than to read the weights",
            "computing = 2 * model.parameters * batch * new",
            "computing = 2 * model.parameters * batch * 1",
        ),
        mistake(
            "A draft was counted as kept though the one before it was not: the second is kept with probability a times "
            "a, and so on",
            "sum(kept**each for each in range(drafts + 1))",
            "1 + kept * drafts",
        ),
        mistake(
            "The draft model takes a pass for each token that it drafts, one after the other",
            "drafts * draft +",
            "(drafts > 0) * draft +",
        ),
        mistake(
            "If all drafts are kept the pass gives one token more, and if none is it gives one: a round without drafts "
            "gives one token",
            "range(drafts + 1))",
            "range(1, drafts + 1)) + (drafts == 0)",
        ),
    ],
    hints=[
        "Begin with one pass: time(ranks, new) of the longer of reading weights and computing, and of the cache, the "
        "starts and the all-reduces. Which of them does a rank share with the others, and which not?",
        "A round with K drafts takes K passes of the draft and one of the model with K + 1 tokens, and gives "
        "1 + a + ... + a^K tokens.",
        "fits, then min over ranks of time(ranks, 1), then max over 0 to 8 drafts of tokens / seconds. min and max "
        "return the first of equals.",
    ],
    why="More GPUs divide what is read, and neither starts nor latency: with slow all-reduces a model is faster on "
    "four GPUs than on eight. Drafts spend arithmetic that is left over, so the same draft helps a small batch or "
    "a long context, and costs time in a large batch of short ones.",
)
def fastest_decode(model, gpu, batch, context, kept, draft):
    """Choose how many GPUs decode a batch of ``batch`` sequences, and how many tokens are drafted in a round.

    ``ranks`` may be 1, 2, 4 or 8. Each rank has 1 / ranks of the weights, of 2 bytes, and of the KV heads, but at least
    one head; of 2 bytes are the numbers of the cache, too, and each sequence has ``context`` tokens in it. ``model``
    has ``parameters``, ``layers``, ``kv_heads``, ``head_dim``. ``gpu.memory`` is for both, and some number of ranks is
    enough.

    A pass that computes n tokens of each sequence takes the longer of reading a rank's weights (at ``gpu.bandwidth``)
    and computing (2 FLOPs for each parameter and token, shared by the ranks, at ``gpu.flops``); and besides it the time
    to read the rank's cache, ``gpu.starts`` for each layer, and with two ranks or more two all-reduces in each layer,
    of ``gpu.all_reduce[ranks]`` seconds. A pass of the draft model takes ``draft`` seconds and gives one drafted token
    for each sequence. A drafted token is kept with probability ``kept``, if all before it were. From 0 to 8 may be
    drafted.

    Return {"alone": ..., "ranks": ..., "drafts": ..., "tokens a second": ...}: the seconds of a pass with one token, on
    the fewest ranks that fit; the ranks, of those that fit, with which that pass is fastest, the fewest of equals; the
    drafts that are then best, the fewest of equals; and the tokens that a sequence gets in a second with both.
    """
    # ? the time of a pass, on so many ranks, with so many tokens of each
    # ? which ranks fit, and which are fastest?  and how many drafts?
    weights = 2 * model.parameters

    def cache(ranks):
        heads = max(model.kv_heads / ranks, 1)
        return batch * context * 2 * model.layers * heads * model.head_dim * 2

    def seconds(ranks, new):
        computing = 2 * model.parameters * batch * new / ranks / gpu.flops
        reading = weights / ranks / gpu.bandwidth
        all_reduces = 2 * model.layers * gpu.all_reduce.get(ranks, 0.0)
        return max(reading, computing) + cache(ranks) / gpu.bandwidth + model.layers * gpu.starts + all_reduces

    def rate(ranks, drafts):
        tokens = sum(kept**each for each in range(drafts + 1))
        return tokens / (drafts * draft + seconds(ranks, drafts + 1))

    fits = [ranks for ranks in (1, 2, 4, 8) if weights / ranks + cache(ranks) <= gpu.memory]
    ranks = min(fits, key=lambda each: seconds(each, 1))
    drafts = max(range(9), key=lambda each: rate(ranks, each))
    return {
        "alone": seconds(fits[0], 1),
        "ranks": ranks,
        "drafts": drafts,
        "tokens a second": rate(ranks, drafts),
    }
