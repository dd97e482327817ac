"""How much of the peak a published run got: from its model's sizes and its tokens per second."""

from tinydist.lab.author import Varied, alone, exercise, mistake

from .chapter import BY_HAND, gpt, llama

A100, H100 = 312e12, 989e12  # FLOP/s, dense, in 16 bits

# Korthikanti et al. 2022, tables 3 and 5: sequences of a step, GPUs, seconds of it with selective and with full
# recomputation; MFU and HFU of the first, in percent.
KORTHIKANTI = {
    "22B": (gpt(48, 6144, 64), 4, 8, 1.10, 1.42, 41.5, 43.7),
    "GPT-3 175B": (gpt(96, 12288, 96), 64, 64, 13.75, 18.13, 51.4, 52.8),
    "530B": (gpt(105, 20480, 128), 280, 280, 37.83, 49.05, 56.0, 57.0),
    "1T": (gpt(128, 25600, 160), 512, 512, 71.49, 94.42, 56.3, 57.0),
}
BLOOM = gpt(70, 14336, 112, 250880)  # bigscience, tr11-176B-ml: 2048 sequences in 105 s on 384 A100s
LLAMA = llama(80, 8192, 64, 22016)  # Touvron et al. 2023, section 2.4: 380 tokens a second and GPU
LLAMA_2 = llama(
    80, 8192, 64, 28672, 8, sequence=4096
)  # Touvron et al. 2023, table 2: 2 T tokens in 1,720,320 GPU hours
LLAMA_3 = llama(126, 16384, 128, 53248, 8, 128256, 8192)  # Llama Team 2024, and its model card: 15.6 T tokens


def case(about, model, recompute, rate, gpus, peak, **more):
    recomputed = {"none": "nothing recomputed", "selective": "attention recomputed", "full": "layers recomputed"}
    return alone(lambda: (model, recompute, rate, gpus, peak), f"{about}, {recomputed[recompute]}", **more)


def step(about, model, recompute, sequences, seconds, gpus, **more):
    return case(about, model, recompute, sequences * model.sequence / seconds, gpus, A100, **more)


def test_cases():
    yield case("a GPT of 3 layers", gpt(3, 96, 6, 1000, 40), "none", 1e4, 1, 1e12)
    yield case("a gated MLP of 200", llama(5, 96, 6, 200, vocabulary=700, sequence=50), "none", 1e5, 4, 1e12)
    yield case("2 heads of keys for 6 of queries", llama(5, 96, 6, 200, 2, 700, 50), "none", 1e5, 4, 1e12)
    yield case("a plain MLP of 500", gpt(4, 128, 8, 900, 64)._replace(inner=500), "selective", 1e5, 3, 2e12)
    yield case("a GPT of 7 layers", gpt(7, 64, 4, 3000, 128), "full", 1e5, 2, 5e11)
    for name, (model, sequences, gpus, selective, full, *percents) in KORTHIKANTI.items():
        about = f"the {name} model of Korthikanti et al."
        yield step(about, model, "selective", sequences, selective, gpus, facts=("MFU, HFU", percents))
        yield step(about, model, "full", sequences, full, gpus)
    yield step("BLOOM 176B", BLOOM, "full", 2048, 105, 384, facts=("FLOP/s", 150e12))
    yield case("LLaMA 65B", LLAMA, "none", 380 * 2048, 2048, A100)
    yield case("Llama 2 70B", LLAMA_2, "none", 2e12 / 1720320 / 3600 * 1024, 1024, A100)
    yield case("Llama 3.1 405B", LLAMA_3, "none", 15.6e12 / 30.84e6 / 3600 * 16384, 16384, H100)


HEAD, AGAIN = "2 * width * model.vocabulary", "model.layers * layer}"


@exercise(
    title="How much of the peak?",
    minutes=20,
    difficulty=2,
    test_cases=test_cases,
    targets=[
        BY_HAND,
        Varied(
            "FLOPs of a token, MFU and HFU: of small models, and of published runs. You find the MFU of 41.5 to 56.3 % "
            "that Korthikanti et al. report (their HFU counts three times what is recomputed)",
            variants=[
                (
                    "What is recomputed is one forward more: backward does not run again, so it counts once, and not "
                    "three "
                    "times",
                    "done = needed + {",
                    "done = needed + 3 * {",
                ),
                (
                    "All of a layer's forward is run again, scores and weighted values, too",
                    '"full": model.layers * layer',
                    '"full": model.layers * products',
                ),
                (
                    "Scores and weighted values are computed again, both: this is one of them",
                    '"selective": model.layers * maps',
                    '"selective": model.layers * maps / 2',
                ),
                ("Each layer is run again: this is one", '"full": model.layers * layer', '"full": layer'),
                (
                    "In each layer scores and weighted values are computed again: this is one layer",
                    '"selective": model.layers * maps',
                    '"selective": maps',
                ),
                (
                    "The rate is that of all GPUs together, and so is the peak: gpus times that of one",
                    "(gpus * peak)",
                    "peak",
                ),
                ("MFU and HFU are parts, and not percents", "of_peak = tokens", "of_peak = 100 * tokens"),
                (
                    "The head is a product as well: forward once, and backward twice",
                    "3 * (model.layers * layer + head)",
                    "3 * model.layers * layer + head",
                ),
                ("A gated MLP has three matrices, the other has two", "(3 if model.gated else 2)", "2"),
                ("A gated MLP has three matrices, the other has two", "(3 if model.gated else 2)", "3"),
                ("The MLP has `inner` numbers inside, and not 4 width", "width * model.inner", "width * 4 * width"),
                (
                    "The projection behind attention is a product, too: width x width",
                    "2 * width * width",
                    "width * width",
                ),
                ("Keys and values are two products", "2 * width * keys", "width * keys"),
                (
                    "A multiplication and its addition are two FLOPs",
                    "products = 2 *",
                    "products = ",
                    "maps = 4 *",
                    "maps = 2 *",
                    "head = 2 *",
                    "head = ",
                ),
                ("A multiplication and its addition are two FLOPs, in the head, too", "head = 2 *", "head = "),
                ("Tokens are embedded by a look-up, and not by a product", "head = 2 *", "head = 4 *"),
                (
                    "Backward is twice forward: together three times, of all that is needed, and of what is "
                    "recomputed once",
                    "needed = 3 *",
                    "needed = 1 *",
                ),
                (
                    "Scores and weighted values are of all heads together: width numbers for each pair",
                    "maps = 4 *",
                    "maps = 4 * model.heads *",
                ),
                (
                    "Each layer has its products: these are those of one",
                    "3 * (model.layers * layer + head)",
                    "3 * (layer + head)",
                ),
                ("Nothing is added for what is recomputed", "done = needed + {", "done = needed + 0 * {"),
            ],
        ),
    ],
    mistakes=[
        mistake(
            "Backward computes twice as much as forward: gradients of what goes in, and of the weights. Together 3",
            "3 * (",
            "2 * (",
        ),
        mistake(
            "This is 6 FLOPs for each parameter, without scores and weighted values: 4 sequence width for each token "
            "of a layer forward, which no parameter has a part in",
            "maps = 4 *",
            "maps = 0 *",
        ),
        mistake(
            "Scores are one product, weighted values another: 2 sequence width each, and all pairs count, causal "
            "or not",
            "maps = 4 *",
            "maps = 2 *",
        ),
        mistake(
            "Keys and values have model.kv_heads heads, and so their matrices are narrower than that of queries",
            "* keys",
            "* width",
        ),
        mistake("The head is missing: logits are a product, with the table of all tokens", HEAD, "0"),
        mistake("Only layers are run again: the head is not", AGAIN, "model.layers * layer + head}"),
        mistake(
            "Selective recomputation runs only scores and weighted values again, and no product with a parameter",
            '"selective": model.layers * maps',
            '"selective": model.layers * layer',
        ),
        mistake(
            "MFU counts what the model needs. What is computed again makes it no better: that is in HFU alone",
            '"MFU": needed *',
            '"MFU": done *',
        ),
    ],
    hints=[
        "Count the FLOPs of one token in one layer, forward: 2 for each number of the matrices that it meets, and what "
        "has no parameters comes on top. What comes after the last layer?",
        "Matrices: those of queries and of the projection have width^2 numbers each, those of keys and values width "
        "kv_heads width/heads; the MLP's two, or three, have width inner. Without parameters: 2 sequence width for "
        "scores, and as much for weighted values.",
        "Backward is twice forward, for layers and head alike. Full recomputation adds one forward of all layers, "
        "selective only what has no parameters.",
        "FLOPs of a token times tokens per second is FLOP/s of all GPUs: divide by what they could do at their peak.",
    ],
    why="Only MFU says how fast a model learns for its money: whoever computes more again gets a better HFU and "
    "trains no sooner. With four sizes and one rate from a paper you can compare runs that were never meant to be "
    "compared.",
)
def mfu_of_run(model, recompute, tokens_per_second, gpus, peak):
    """A run trained with ``tokens_per_second`` on all of its ``gpus`` together. How much of their peak did it get?

    Return {"model FLOPs": ..., "hardware FLOPs": ..., "MFU": ..., "HFU": ...}. FLOPs are per token, forward and
    backward: those that the model needs, and those that the GPUs compute, the recomputed ones included. MFU and HFU are
    the parts of the ``peak``, in FLOP/s of one GPU, that these come to: 0.5 is one half.

    A model has ``layers``, ``width``, ``heads`` of queries, ``kv_heads`` of keys and values, each of width / heads
    numbers, an MLP with ``inner`` numbers inside, of three matrices where it is ``gated``, else of two, a
    ``vocabulary``, and trains on a ``sequence`` of so many tokens. Count the products: all with parameters, scores
    (queries with keys), and weighted values. All pairs of tokens count, as in papers, though a causal kernel leaves out
    half of them. The head gives logits for all tokens.

    ``recompute`` is "none"; "selective", where scores and weighted values are computed again; or "full", where the
    whole forward pass of the layers is.
    """
    width = model.width
    # ? FLOPs of a token forward, in a layer and in the head
    keys = model.kv_heads * width // model.heads
    products = 2 * (2 * width * width + 2 * width * keys + (3 if model.gated else 2) * width * model.inner)
    maps = 4 * model.sequence * width
    layer = products + maps
    head = 2 * width * model.vocabulary
    # ? What is needed, what is done, and what part of the peak is that?
    needed = 3 * (model.layers * layer + head)
    done = needed + {"none": 0, "selective": model.layers * maps, "full": model.layers * layer}[recompute]
    of_peak = tokens_per_second / (gpus * peak)
    return {"model FLOPs": needed, "hardware FLOPs": done, "MFU": needed * of_peak, "HFU": done * of_peak}
