"""What the cache of a model takes, predicted: bytes a token, GiB a sequence, and how many sequences fit."""

import math
from functools import partial

from ...alone import Calls, input_of
from ...errors import Wrong
from ...exercise import exercise
from ...own_work import Watched
from ...values import kind
from ...verdict import Property
from .measured_cache import DTYPES, Model, measured
from .own_work import own_work

GB, GiB = 10**9, 2**30
NAMES = ("bytes a token", "GiB a sequence", "batch")

# model, tokens, gigabytes. The first are in 16 bits: what is wrong with others is their format.
SMALL = [
    (Model("6 layers, 15 query heads, 3 of K and V", 6, 105, 15, 3), 130, 0.01),
    (Model("5 layers, 6 query heads, 1 of K and V", 5, 78, 6, 1), 77, 0.01),
    (Model("7 layers, 11 heads, each with its own K and V", 7, 110, 11, 11), 190, 0.02),
    (Model("the first in fp32", 6, 105, 15, 3, "fp32"), 130, 0.01),
    (Model("the first in fp8", 6, 105, 15, 3, "fp8"), 130, 0.01),
]
# Published configurations: Touvron et al. 2023, Llama 2; Grattafiori et al. 2024, The Llama 3 Herd; Zhang et al. 2022.
LLAMA = [
    (Model("Llama 2 7B", 32, 4096, 32, 32), 4096, 60.0),
    (Model("Llama 2 70B", 80, 8192, 64, 8), 4096, 500.0),
    (Model("Llama 3 8B", 32, 4096, 32, 8), 8192, 60.0),
    (Model("Llama 3 70B", 80, 8192, 64, 8), 8192, 20.0),
    (Model("Llama 3.1 405B", 126, 16384, 128, 8), 131072, 60.0),
    (Model("OPT 13B", 40, 5120, 40, 40), 2048, 30.0),
]


def cases():
    for model, tokens, gigabytes in SMALL + LLAMA:
        about = f"{model.name}, {tokens:,} tokens, {gigabytes:g} GB"
        yield input_of(partial(lambda *each: each, model, tokens, gigabytes), about, (model, tokens, gigabytes))


def properties(answer):
    watched = Watched(answer, torchs="attention")
    trials = Calls(watched, cases())
    yield Property("own work", "predicted, not asked of the library", own_work(watched, trials))
    yield Property("runs", "three numbers come back", lambda: came_back(trials))
    yield Property("token", "bytes that one token adds, in 32, 16 and 8 bits", trials.each(token, small))
    yield Property("sequence", "in GiB, as the ledger counts them", trials.each(sequence, small))
    yield Property("batch", "whole sequences that fit", trials.each(batch, small))
    yield Property("Llama 2, 3", "what is published of them, and of OPT", trials.each(published))


def small(case):
    return case.expected in SMALL


def came_back(trials):
    trials.end()
    trials.each(form)()


def form(trial):
    got = trial.returned[0]
    if not isinstance(got, dict):
        raise Wrong(f"it returned {kind(got)}, where a dict is right: {', '.join(map(repr, NAMES))}")
    if set(got) != set(NAMES):
        raise Wrong(
            f"it has {', '.join(map(repr, got)) or 'nothing'}, where {', '.join(map(repr, NAMES))} are asked for"
        )
    for name, number in got.items():
        if isinstance(number, bool) or not isinstance(number, int | float) or not math.isfinite(number):
            what = repr(number) if isinstance(number, float | bool) else kind(number)
            raise Wrong(f"{name!r} is {what}, where a number is right")


# Which term is it? A reason is given if the factor is exactly its own.


def token(trial):
    model, tokens, _ = trial.case.expected
    got, right = trial.returned[0]["bytes a token"], measured(model, tokens) / tokens
    if not near(got, right):
        raise Wrong(f"{got:,.7g} bytes a token: {factor(got, right)}{of_token(model, tokens, got / right)}")


def factor(got, right):
    if got <= 0:
        return "a token does add some"
    times = got / right if got > right else right / got
    return f"{times:.4g} times too {'many' if got > right else 'few'}"


def of_token(model, tokens, ratio):
    """Each model of SMALL has another number of each of these."""
    size = DTYPES[model.dtype].itemsize
    if model.dtype != "fp16":
        return f". In fp16 yours are right. Here a number has {size * 8} bits: model.dtype says it"
    reasons = {
        model.heads / model.kv_heads: "heads of queries are counted. They are not kept: heads of keys and values are, "
        "model.kv_heads",
        model.heads
        / model.kv_heads
        / 2: "heads of queries are counted, which are not kept, and of keys and values only one",
        1 / 2: "a token leaves a key and a value, and each of their numbers has 2 bytes in fp16",
        8: "these are bits, and a byte has 8",
        16: "is that twice for K and V, and in bits? A byte has 8",
        1 / model.layers: "each layer keeps keys and values of its own",
        1 / model.kv_heads: "each head of keys and values keeps its own",
        1 / model.head_dim: "a key has a number for each dim of a head, model.hidden / model.heads",
        model.heads: "each head has a part of model.hidden: hidden / heads numbers",
        tokens: "these are the bytes of all tokens together",
    }
    return next(
        (f". {words[0].upper()}{words[1:]}" for each, words in reasons.items() if each != 1 and near(each, ratio)), ""
    )


def sequence(trial):
    model, tokens, _ = trial.case.expected
    got, right = trial.returned[0]["GiB a sequence"], measured(model, tokens) / GiB
    if not near(got, right):
        reasons = {
            GiB / GB: ". These are GB, of 10^9 bytes; a GiB has 2^30",
            GiB: ". These are bytes; a GiB has 2^30",
            GiB / 2**20: ". These are MiB; a GiB has 2^10 of them",
            GiB / 10**6: ". These are MB; a GiB has 2^30 bytes",
            8: ". These are gibibits, and a byte has 8 bits",
            1 / tokens: f". This is one token of {tokens}",
            (tokens - 1) / tokens: ". One token is missing",
        }
        known = next((words for ratio, words in reasons.items() if near(got, ratio * right)), "")
        raise Wrong(f"{got:.7g} GiB a sequence: {factor(got, right)}{known}")


def batch(trial):
    model, tokens, gigabytes = trial.case.expected
    got, each = trial.returned[0]["batch"], measured(model, tokens)
    right = int(gigabytes * GB) // each
    if got != right:
        raise Wrong(f"a batch of {got:,.7g}: {of_batch(got, gigabytes, each, right, tokens)}")


def of_batch(got, gigabytes, each, right, tokens):
    if got != int(got) and math.floor(got) == right:
        return "a sequence fits as a whole, or it does not"
    if math.floor(got) == math.floor(gigabytes * GiB / each):
        return f"so many fit into {gigabytes:g} GiB, of 2^30 bytes each; gigabytes, GB, have 10^9"
    if near(got, gigabytes * GB * tokens / each) or got == int(gigabytes * GB * tokens / each):
        return f"so many tokens fit. A sequence has {tokens} of them"
    if right == 0:
        return f"not one fits, since its cache takes {each / GB:.7g} GB, and there are {gigabytes:g}: the batch is 0"
    if got > right:
        down = ". Round down" if math.ceil(got) == right + 1 else ""
        return f"its caches take {got * each / GB:.7g} GB, and there are {gigabytes:g}{down}"
    return "more fit"


def published(trial):
    for judge in (token, sequence, batch):
        judge(trial)


def near(a, b):
    return math.isclose(a, b, rel_tol=1e-6)


@exercise(
    chapter="09_attention_heads",
    title="What the cache takes",
    minutes=15,
    difficulty=2,
    targets={
        "values": "bytes a token and GiB a sequence as the ledger counts them, for MHA, GQA and MQA, in 32, 16 and 8 "
        "bits; the largest batch",
        "Llama 2 7B": "512 KiB a token, 2 GiB for 4096 tokens",
        "Llama 3 8B": "a quarter of that a token, with as many layers and the same width",
    },
    hints=[
        "What does one token leave behind, in one layer? How many layers are there?",
        "A key and a value for each head that has keys: not for each head of queries. How many numbers has one key?",
        "hidden / heads numbers; 2 bytes each in fp16. A GiB is 2^30 bytes, a GB 10^9: work with bytes, and convert at "
        "the end.",
        "bytes a token = 2 layers kv_heads (hidden / heads) (bytes of a number). Times tokens, it is what a sequence "
        "takes; gigabytes * 10^9 divided by that and rounded down is the batch.",
    ],
    why="The batch is what decoding is paid by: the weights are read once for all sequences of it, and the cache's "
    "bytes decide how many fit. Grouped heads made that eight times as many for Llama 2 70B, before anyone "
    "had to page or quantize.",
    check=properties,
)
def plan_cache(model, tokens, gigabytes):
    """Predict the KV cache of ``model`` for sequences of ``tokens``, and the batch for which ``gigabytes`` are enough.

    Return {"bytes a token": ..., "GiB a sequence": ..., "batch": ...}: what one token adds for one sequence in all
    layers together; what a sequence of ``tokens`` takes; and the largest number of such sequences, whole, that fit in
    ``gigabytes`` GB, which the weights and all else have left. It may be 0.

    A model has attributes: ``model.layers``, ``model.hidden`` (the width, of all query heads together),
    ``model.heads`` (of queries), ``model.kv_heads`` (of keys and values), ``model.dtype`` ("fp32", "fp16" or "fp8").
    """
    size = {"fp32": 4, "fp16": 2, "fp8": 1}  # bytes of a number
    # what does a token leave behind, in each layer?
    # of a sequence, in GiB; and how many sequences fit, in bytes?
    raise NotImplementedError
