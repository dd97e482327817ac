"""A training step in 16 and in 8 bits, predicted: products, casts, the optimizer, and what stays as it is."""

from math import isclose

from tinydist.lab.author import Own, Values, alone, exercise, mistake

from .chapter import HERE, SOLVED

LLAMA_8B = [(6144, 4096), (4096, 4096), (14336, 4096), (14336, 4096), (4096, 14336)]


def case(about, matrices, tokens, gpus, rest=0.7, rate=650e12, faster=1.75, bandwidth=2.2e12):
    on = "1 GPU" if gpus == 1 else f"{gpus} GPUs"
    return alone(lambda: (matrices, tokens, rest, gpus, rate, faster, bandwidth), f"{about}, {on}")


def test_cases():
    yield case("one matrix", [(512, 256)], 1024, 1, rest=0.0)
    for gpus in (1, 8, 128):
        yield case("a layer of Llama 3 8B", LLAMA_8B, 16_384, gpus)
    yield case("all its layers", 32 * LLAMA_8B, 8192, 8)
    yield case("few tokens", LLAMA_8B, 128, 8, rest=0.0)
    yield case("a GPU that is not faster in 8 bits", LLAMA_8B, 16_384, 8, faster=1.0)
    yield case("a slow memory", LLAMA_8B, 16_384, 8, bandwidth=0.3e12)


class Steps(Values):
    def general(self, trial, right):
        (in_16, in_8), (want_16, want_8) = trial.returned[0], right.returned[0]
        if not all(isinstance(each, int | float) for each in (in_16, in_8)):
            return super().general(trial, right)
        if isclose(in_16, want_8, rel_tol=1e-6) and isclose(in_8, want_16, rel_tol=1e-6):
            return "They are the wrong way round: in 16 bits goes first"
        matrices, tokens, _, _, rate, *_ = trial.case.arguments(0)
        flops = (in_16 - want_16) * rate / tokens / sum(outputs * inputs for outputs, inputs in matrices)
        if abs(flops) > 0.5 and abs(flops - round(flops)) < 1e-6:
            return f"Your products have {6 + round(flops)} FLOPs for each token and each number of a matrix"
        return super().general(trial, right)


@exercise(
    title="Predict a step in 8 bits",
    minutes=30,
    difficulty=2,
    test_cases=test_cases,
    targets=[
        Own("predicted by yourself", HERE, SOLVED),
        Steps(
            "seconds in 16 and in 8 bits: for one matrix and for 160, for 128 to 16,384 tokens, on 1, 8 and 128 GPUs",
            names=("in 16 bits", "in 8 bits"),
            tell=False,
        ),
    ],
    mistakes=[
        mistake(
            "Each matrix takes part in three products: forward, for the gradient of its input, for its own",
            "3 * 2 * tokens",
            "2 * tokens",
        ),
        mistake(
            "A product of a matrix with o x i numbers has 2 o i FLOPs for each token",
            "3 * 2 * tokens",
            "3 * tokens",
        ),
        mistake(
            "The weight's shard alone is cast on each GPU, before it is gathered: a part of 1/gpus",
            "outputs * inputs / gpus",
            "outputs * inputs",
        ),
        mistake(
            "Three tensors of each layer are cast: the input, the weight, and the gradient of the output",
            "tokens * inputs + tokens * outputs + outputs * inputs / gpus",
            "tokens * inputs + outputs * inputs / gpus",
        ),
        mistake(
            "A cast reads each number twice, 2 bytes each time, and writes 1 byte",
            "numbers * 5",
            "numbers * 3",
        ),
        mistake(
            "The optimizer's 28 bytes per parameter are moved by the GPU that owns it: each has a part of 1/gpus",
            "parameters * 28 / gpus",
            "parameters * 28",
        ),
        mistake(
            "The optimizer takes time, too: it moves 28 bytes for each parameter of the shard",
            "rest + parameters * 28 / gpus / bandwidth",
            "rest",
        ),
        mistake(
            "The rest and the optimizer are as long in 8 bits as in 16: only the products get faster",
            "products / faster + casts + same",
            "(products + same) / faster + casts",
        ),
    ],
    hints=[
        "Four things take time: products, casts, the optimizer, and the rest. Which of them differ between 16 and 8 "
        "bits?",
        "A matrix of o x i numbers is multiplied three times in a step, and each of these products has 2 o i FLOPs for "
        "each token. In 8 bits it is `faster` times as fast.",
        "Casts: tokens x i numbers of the input, tokens x o of the gradient, and of the weight the shard, o i / gpus. "
        "Each number is read, 2 bytes, to find the largest; read again, and written in 1 byte.",
        "The optimizer moves 28 bytes for each parameter of the shard. It and `rest` are in both sums.",
    ],
    why="With this sum you see at once why small layers gain nothing: products grow with tokens x o x i, casts only "
    "with tokens x (o + i). And why an optimizer on one GPU spoils the factor, and a sharded one does not.",
)
def predicted_step(matrices, tokens, rest, gpus, rate, faster, bandwidth):
    """Predict the seconds of a training step on each GPU, in 16 and in 8 bits. Return (in 16 bits, in 8 bits).

    ``matrices``: (outputs, inputs) of each linear layer. ``tokens``: of each GPU. Products in 16 bits run at ``rate``
    FLOP/s, and in 8 bits ``faster`` times as fast. ``rest``: seconds of all else, such as attention, in both.

    In 8 bits the input, the weight and the gradient of the output of each layer are cast, each once: read to find
    the largest number, in 16 bits, read again, and written in 8 bits. Weights are sharded: each GPU casts its part of
    1/``gpus``, and the optimizer moves 28 bytes for each parameter of that part. Memory moves ``bandwidth`` bytes/s,
    and nothing overlaps.
    """
    products = casts = parameters = 0
    for outputs, inputs in matrices:
        # ? How many FLOPs does a layer have in a step? How many numbers are cast?
        products += 3 * 2 * tokens * outputs * inputs / rate
        numbers = tokens * inputs + tokens * outputs + outputs * inputs / gpus
        casts += numbers * 5 / bandwidth
        parameters += outputs * inputs
    # ? What is the same in both?
    same = rest + parameters * 28 / gpus / bandwidth
    return products + same, products / faster + casts + same
