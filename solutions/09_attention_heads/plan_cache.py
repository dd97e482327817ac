"""What the cache of a model takes, predicted: bytes a token, GiB a sequence, and how many sequences fit."""

from typing import NamedTuple

from tinydist.lab.author import Own, alone, exercise, mistake

from .chapter import INSTEAD, SOLVED, Part


class Model(NamedTuple):
    name: str
    layers: int
    hidden: int  # width, of all query heads together
    heads: int  # of queries
    kv_heads: int  # of keys and values
    dtype: str = "fp16"  # of what is kept
    latent: int = 0  # numbers of a latent, in place of keys and values; 0: there is none
    rotary: int = 0  # of the rotary key beside it


# model, tokens, gigabytes. The first are in 16 bits: what is wrong with others is their format.
SMALL = [
    (Model("6 layers, 15 query heads, 3 of K and V", 6, 105, 15, 3), 130, 0.01),
    (Model("5 layers, 6 query heads, 1 of K and V", 5, 78, 6, 1), 77, 0.01),
    (Model("7 layers, 11 heads, each with its own K and V", 7, 110, 11, 11), 190, 0.02),
    (Model("6 layers in fp32", 6, 105, 15, 3, "fp32"), 130, 0.01),
    (Model("6 layers in fp8", 6, 105, 15, 3, "fp8"), 130, 0.01),
    (Model("latents of 40 and rotary keys of 6", 6, 120, 15, 15, "fp16", 40, 6), 130, 0.01),
]
# Published configurations: Touvron et al. 2023, Llama 2; Grattafiori et al. 2024, The Llama 3 Herd; Zhang et al. 2022;
# DeepSeek-AI 2024, DeepSeek-V3, section 4.2: 128 heads of 128 numbers.
LLAMA = [
    (Model("Llama 2 7B", 32, 4096, 32, 32), 4096, 60.0),
    (Model("Llama 2 70B", 80, 8192, 64, 8), 4096, 500.0),
    (Model("Llama 3 8B", 32, 4096, 32, 8), 8192, 60.0),
    (Model("Llama 3 70B", 80, 8192, 64, 8), 8192, 20.0),
    (Model("Llama 3.1 405B", 126, 16384, 128, 8), 131072, 60.0),
    (Model("OPT 13B", 40, 5120, 40, 40), 2048, 30.0),
    (Model("DeepSeek-V3", 61, 16384, 128, 128, "fp16", 512, 64), 131072, 60.0),
]


def test_cases():
    for model, tokens, gigabytes in SMALL + LLAMA:
        about = f"{model.name}, {tokens:,} tokens, {gigabytes:g} GB"
        yield alone(lambda each=(model, tokens, gigabytes): each, about)


class Predicted(Part):
    """The right number is not told, but how far off yours is."""

    def __init__(self, name, key, holds):
        super().__init__(name, key, holds, tell=False)

    def general(self, trial, right):
        (mine,), (its,) = (self.seen(each).values() for each in (trial, right))
        if self.name == "batch":
            _, _, gigabytes = trial.arguments[0]
            taken = mine * right.returned[0]["GiB a sequence"] * 2**30 / 10**9
            return f"Its caches take {taken:.7g} GB, and there are {gigabytes:g}" if mine > its else "More fit"
        if mine <= 0:
            return "It is more than nothing"
        return f"This is {max(mine / its, its / mine):.4g} times too {'many' if mine > its else 'few'}"


BATCH = "int(gigabytes * 10**9 // sequence)"


@exercise(
    title="What the cache takes",
    minutes=15,
    difficulty=2,
    test_cases=test_cases,
    targets=[
        Own("predicted, not asked of the library", INSTEAD, SOLVED),
        Predicted(
            "token",
            "bytes a token",
            "for MHA, GQA, MQA and MLA, in 32, 16 and 8 bits. Llama 2 7B: 512 KiB; Llama 3 8B: a quarter of that, with "
            "as many layers and the same width",
        ),
        Predicted("sequence", "GiB a sequence", "as the ledger counts them. Llama 2 7B: 2 GiB for 4096 tokens"),
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
            "As many numbers are counted as keys and values would have. With model.latent they are not kept: they are "
            "made from a latent of so many numbers, and beside it stands a rotary key",
            "if model.latent:",
            "if False:",
        ),
        mistake(
            "The rotary key is kept as well, beside the latent: model.rotary numbers",
            "model.latent + model.rotary",
            "model.latent",
        ),
        mistake(
            "There is one latent for the key and the value, and one rotary key, so nothing is kept twice",
            "model.latent + model.rotary",
            "2 * (model.latent + model.rotary)",
        ),
        mistake(
            "All heads share the latent and the rotary key: they are kept once in a layer, not for each head",
            "model.latent + model.rotary",
            "model.heads * (model.latent + model.rotary)",
        ),
        mistake("These are GB, of 10^9 bytes; a GiB has 2^30", "2**30", "10**9"),
        mistake("One more than fits: round down", BATCH, "int(-(-gigabytes * 10**9 // sequence))"),
    ],
    hints=[
        "What does one token leave behind, in one layer? How many layers are there?",
        "A key and a value for each head that has keys: not for each head of queries. How many numbers has one key?",
        "hidden / heads numbers; 2 bytes each in fp16. A GiB is 2^30 bytes, a GB 10^9: work with bytes, and convert at "
        "the end.",
        "Bytes a token is a product of five: the two of K and V, the layers, and which three more? With a latent, its "
        "numbers and those of the rotary key take the place of 2, heads and head dim. Times tokens, it is what a "
        "sequence takes; how often does that fit into gigabytes * 10^9?",
    ],
    why="The batch is what decoding is paid by: the weights are read once for all sequences of it, and the cache's "
    "bytes decide how many fit. Grouped heads made that eight times as many for Llama 2 70B, and latents 57 times as "
    "many for DeepSeek-V3, before anyone had to page or quantize.",
)
def plan_cache(model, tokens, gigabytes):
    """Predict the KV cache of ``model`` for sequences of ``tokens``, and the batch for which ``gigabytes`` are enough.

    Return {"bytes a token": ..., "GiB a sequence": ..., "batch": ...}: what one token adds for one sequence in all
    layers together; what a sequence of ``tokens`` takes; and the largest number of such sequences, whole, that fit in
    ``gigabytes`` GB, which the weights and all else have left. It may be 0.

    A model has attributes: ``model.layers``, ``model.hidden`` (the width, of all query heads together),
    ``model.heads`` (of queries), ``model.kv_heads`` (of keys and values), ``model.dtype`` ("fp32", "fp16" or "fp8").
    Where ``model.latent`` is not 0, a layer keeps no keys and values but, as in MLA, latents of ``model.latent``
    numbers, with rotary keys of ``model.rotary`` numbers beside them.
    """
    size = {"fp32": 4, "fp16": 2, "fp8": 1}  # bytes of a number
    # ? what does a token leave behind, in each layer?
    # ? of a sequence, in GiB; and how many sequences fit, in bytes?
    head_dim = model.hidden // model.heads
    numbers = 2 * model.kv_heads * head_dim  # a key and a value
    if model.latent:
        numbers = model.latent + model.rotary
    token = model.layers * numbers * size[model.dtype]
    sequence = tokens * token
    return {"bytes a token": token, "GiB a sequence": sequence / 2**30, "batch": int(gigabytes * 10**9 // sequence)}
