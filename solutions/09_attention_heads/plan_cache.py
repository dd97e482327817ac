"""What the cache of a model takes, predicted: what grows, GiB a sequence, and how many sequences fit."""

from typing import NamedTuple

from tinydist.lab.author import Own, Part, alone, exercise, mistake

from .chapter import INSTEAD, SOLVED


class Model(NamedTuple):
    name: str
    layers: int
    hidden: int  # width, of all query heads together
    heads: int  # of queries
    kv_heads: int  # of keys and values
    dtype: str = "fp16"  # of what is kept
    window: int = 0  # tokens that a layer with a sliding window keeps; 0: no layer has one
    every: int = 1  # with a window, of so many layers one has none, and keeps all tokens


# model, tokens, gigabytes. The first are in 16 bits: what is wrong with others is their format.
SMALL = [
    (Model("6 layers, 15 query heads, 3 of K and V", 6, 105, 15, 3), 130, 0.01),
    (Model("5 layers, 6 query heads, 1 of K and V", 5, 78, 6, 1), 77, 0.01),
    (Model("7 layers, 11 heads, each with its own K and V", 7, 110, 11, 11), 190, 0.02),
    (Model("6 layers in fp32", 6, 105, 15, 3, "fp32"), 130, 0.01),
    (Model("6 layers in fp8", 6, 105, 15, 3, "fp8"), 130, 0.01),
    (Model("windows of 40 in two layers of three", 6, 105, 15, 3, "fp16", 40, 3), 130, 0.01),
    (Model("windows of 40 in three layers of four, 7 layers", 7, 110, 11, 11, "fp16", 40, 4), 190, 0.02),
    (Model("windows that are longer than the sequence", 6, 105, 15, 3, "fp16", 200, 3), 130, 0.01),
    (Model("windows that are just full", 6, 105, 15, 3, "fp16", 130, 3), 130, 0.01),
]
# Published configurations: Touvron et al. 2023, Llama 2; Grattafiori et al. 2024, The Llama 3 Herd; Zhang et al. 2022;
# google/gemma_pytorch@de621eb3 gemma/config.py; openai/gpt-oss@0568dfc9 gpt_oss/torch/model.py.
LLAMA = [
    (Model("Llama 2 7B", 32, 4096, 32, 32), 4096, 60.0),
    (Model("Llama 2 70B", 80, 8192, 64, 8), 4096, 500.0),
    (Model("Llama 3 8B", 32, 4096, 32, 8), 8192, 60.0),
    (Model("Llama 3 70B", 80, 8192, 64, 8), 8192, 20.0),
    (Model("Llama 3.1 405B", 126, 16384, 128, 8), 131072, 60.0),
    (Model("OPT 13B", 40, 5120, 40, 40), 2048, 30.0),
    (Model("Gemma 3 27B", 62, 4096, 32, 16, "fp16", 1024, 6), 131072, 60.0),
    (Model("gpt-oss 120B", 36, 4096, 64, 8, "fp16", 128, 2), 131072, 60.0),
]


def test_cases():
    for model, tokens, gigabytes in SMALL + LLAMA:
        about = f"{model.name}, {tokens:,} tokens, {gigabytes:g} GB"
        yield alone(lambda each=(model, tokens, gigabytes): each, about)


BATCH = "int(gigabytes * 10**9 // sequence)"
GROWS = "tokens < model.window else whole"
WHOLE = "whole = model.layers // model.every"
VARIANTS = [
    (
        "A window that is just full does not grow: the next token takes the place of the oldest",
        GROWS,
        "tokens <= model.window else whole",
    ),
    (
        "The layers without a window grow with each token, and the others only until their window is full",
        GROWS,
        "tokens < model.window else 0",
    ),
    (
        "Of layers with a window those grow that have none; the others have as many tokens as they keep",
        "token * growing",
        "token * (model.layers - whole if model.window else model.layers)",
    ),
    ("This is one layer: all of them grow", "token * growing", "token"),
    ("All numbers have 4 bytes here: model.dtype says how many they have", "size[model.dtype]", "4"),
    ("All numbers have 1 byte here: model.dtype says how many they have", "size[model.dtype]", "1"),
    ("In fp8 a number has 1 byte, in fp16 2", '"fp8": 1', '"fp8": 2'),
    ("A token leaves a key and a value", "token = 2 *", "token ="),
    ("A token leaves a key and a value, and no more", "token = 2 *", "token = 4 *"),
    ("A head has hidden / heads numbers, and not hidden", "model.hidden // model.heads", "model.hidden"),
    (
        "Each layer has its own keys and values: this is one layer",
        "token * (whole * tokens",
        "token / model.layers * (whole * tokens",
    ),
    (
        "One of model.every layers has no window: here one of them has a window",
        WHOLE,
        "whole = model.layers - model.layers // model.every",
    ),
    ("The other layers have no window, too: one of model.every keeps all", WHOLE, f"{WHOLE} + 1"),
    (
        "No more than the last model.window tokens are kept, with the new one",
        "min(tokens, model.window)",
        "min(tokens, model.window - 1)",
    ),
    ("These are MiB: a GiB has 2^30 bytes", "2**30", "2**20"),
    ("These are bytes: a GiB has 2^30", "sequence / 2**30", "sequence"),
    (
        "The cache has what a sequence of `tokens` leaves, and not the next token",
        "sequence = token * (whole * tokens",
        "sequence = token * (whole * (tokens + 1)",
    ),
    ("`gigabytes` are GB, of 10^9 bytes", "gigabytes * 10**9", "gigabytes * 2**30"),
    ("Round down, and not to the nearest", BATCH, "round(gigabytes * 10**9 / sequence)"),
    (
        "Sequences that have been cut by windows take less: these are counted as if all layers kept all",
        BATCH,
        "int(gigabytes * 10**9 // (token * model.layers * tokens))",
    ),
]


class Predicted(Part):
    """The right number is not told, but how far off yours is."""

    def __init__(self, name, key, holds):
        super().__init__(name, key, holds, tell=False, variants=VARIANTS)

    def general(self, trial, right):
        (mine,), (its,) = (self.seen(each).values() for each in (trial, right))
        if self.name == "batch":
            _, _, gigabytes = trial.arguments[0]
            taken = mine * right.returned[0]["GiB a sequence"] * 2**30 / 10**9
            return f"Its caches take {taken:.7g} GB, and there are {gigabytes:g}" if mine > its else "More fit"
        if mine <= 0 or its <= 0:
            return "It is more than nothing" if its > 0 else "It is nothing"
        return f"This is {max(mine / its, its / mine):.4g} times too {'many' if mine > its else 'few'}"


@exercise(
    title="What the cache takes",
    minutes=20,
    difficulty=2,
    test_cases=test_cases,
    targets=[
        Own("predicted, not asked of the library", INSTEAD, SOLVED),
        Predicted(
            "token",
            "next token",
            "what one more token adds, for MHA, GQA, MQA and windows, in 32, 16 and 8 bits. Llama 2 7B: 512 KiB; Llama "
            "3 8B: a quarter of that, with as many layers and the same width",
        ),
        Predicted(
            "sequence",
            "GiB a sequence",
            "as the ledger counts them. Llama 2 7B: 2 GiB for 4096 tokens; Gemma 3 27B: a sixth of what it would be "
            "without windows, for 131072",
        ),
        Predicted("batch", "batch", "the largest number of whole sequences that fit"),
    ],
    mistakes=[
        mistake(
            "In fp16, with 16 bits a number, yours are right: model.dtype says how many it has here",
            "size[model.dtype]",
            "2",
        ),
        mistake(
            "As many numbers are counted as the queries have, model.hidden in all. Those are not kept: K and V have "
            "only model.kv_heads heads, of hidden / heads numbers each",
            "model.kv_heads *",
            "model.heads *",
        ),
        mistake(
            "All layers are counted as if they kept all tokens. With model.window only one layer of model.every does",
            "if model.window:",
            "if False:",
        ),
        mistake(
            "No layer keeps all tokens, as you count. One of model.every layers has no window",
            "whole = model.layers // model.every",
            "whole = 0",
        ),
        mistake(
            "The layers without a window are rounded up. Counted from 1, every model.every-th layer is one: of 7 "
            "layers with every = 4 it is the 4th",
            "whole = model.layers // model.every",
            "whole = -(-model.layers // model.every)",
        ),
        mistake(
            "A layer with a window is counted as full. In a shorter sequence it keeps as many tokens as there are, and "
            "grows with each",
            "min(tokens, model.window)",
            "model.window",
            "tokens < model.window",
            "False",
        ),
        mistake("These are GB, of 10^9 bytes; a GiB has 2^30", "2**30", "10**9"),
        mistake("One more than fits: round down", BATCH, "int(-(-gigabytes * 10**9 // sequence))"),
    ],
    hints=[
        "What does one token leave behind, in one layer? How many layers are there?",
        "A key and a value for each head that has keys: not for each head of queries. How many numbers has one key?",
        "hidden / heads numbers; 2 bytes each in fp16. A GiB is 2^30 bytes, a GB 10^9: work with bytes, and convert at "
        "the end.",
        "With windows there are two kinds of layers. One of `every` keeps `tokens`, the others at most `window`. Which "
        "of them grow when one more token comes, if the sequence is longer than the window? And if it is shorter?",
    ],
    why="The batch is what decoding is paid by: the weights are read once for all sequences of it, and the cache's "
    "bytes decide how many fit. Grouped heads made that eight times as many for Llama 2 70B, and windows six times as "
    "many for Gemma 3 27B at 131,072 tokens, before anyone had to page or quantize.",
)
def plan_cache(model, tokens, gigabytes):
    """Predict the KV cache of ``model`` for sequences of ``tokens``, and the batch for which ``gigabytes`` are enough.

    Return {"bytes of the next token": ..., "GiB a sequence": ..., "batch": ...}: by how many bytes the cache of a
    sequence of ``tokens`` grows, in all layers together, when one more token comes; what a sequence of ``tokens``
    takes; and the largest number of such sequences, whole, that fit in ``gigabytes`` GB, which the weights and all else
    have left. It may be 0.

    A model has attributes: ``model.layers``, ``model.hidden`` (the width, of all query heads together),
    ``model.heads`` (of queries), ``model.kv_heads`` (of keys and values), ``model.dtype`` ("fp32", "fp16" or "fp8").
    Where ``model.window`` is not 0, a layer keeps the last ``model.window`` tokens, but for every ``model.every``-th
    layer (counted from 1), which keeps all.
    """
    size = {"fp32": 4, "fp16": 2, "fp8": 1}  # bytes of a number
    # ? what does a token leave behind, in each layer?
    # ? how many layers keep all tokens, and how many the last ones only?
    # ? of a sequence, in GiB; and how many sequences fit, in bytes?
    head_dim = model.hidden // model.heads
    token = 2 * model.kv_heads * head_dim * size[model.dtype]  # a key and a value, in one layer
    whole = model.layers
    if model.window:
        whole = model.layers // model.every
    growing = model.layers if tokens < model.window else whole
    sequence = token * (whole * tokens + (model.layers - whole) * min(tokens, model.window))
    batch = int(gigabytes * 10**9 // sequence)
    return {"bytes of the next token": token * growing, "GiB a sequence": sequence / 2**30, "batch": batch}
