"""Which activations fit? The way of keeping them that costs the least time, and what it takes at the peak."""

from tinydist.lab.author import Own, Target, Values, Wrong, alone, exercise, mistake

from .chapter import BY_HAND, SOLVED

GB = 1e9


def case(about, layers, batch, sequence, width, gpus, parameters, room):
    counts = f"{layers} layer{'s' * (layers > 1)} on {gpus} GPU{'s' * (gpus > 1)}"
    shape = f"{counts} of {room / GB:g} GB, batch {batch}, sequences of {sequence:,}"
    return alone(lambda: (layers, batch, sequence, width, gpus, parameters, room), f"{about}: {shape}")


def test_cases():
    yield case("a small model", 12, 8, 1024, 768, 1, 0.124e9, 16 * GB)
    yield case("the model of the notebook", 48, 4, 2048, 6144, 8, 22.07e9, 80 * GB)
    yield case("the same model, more sequences", 48, 6, 2048, 6144, 8, 22.07e9, 80 * GB)
    yield case("the same model with longer sequences", 48, 1, 32_768, 6144, 8, 22.07e9, 80 * GB)
    yield case("the same model on two GPUs", 48, 4, 2048, 6144, 2, 22.07e9, 80 * GB)
    yield case("a small model, a large batch", 12, 64, 1024, 768, 1, 0.124e9, 16 * GB)
    yield case("a small model, a larger batch", 12, 100, 1024, 768, 1, 0.124e9, 16 * GB)
    yield case("a model that fills the room to the byte", 4, 1, 2048, 4096, 8, 8e9, 16_369_098_752)
    yield case("just enough for what is kept, but not for GELU's result", 24, 16, 2048, 2048, 1, 0.1e9, 34.5 * GB)
    yield case(
        "just enough for the inputs, but not for the layer that is run again", 24, 16, 2048, 2048, 1, 1.2e9, 23 * GB
    )


def ways():
    """What somebody may take otherwise: of a layer's s b h, and for the room."""
    return {
        "In backward one layer runs again at a time, not all of them": of(
            again=lambda t, layers: (0, max(2, 8 / t), layers * (8 + 24 / t) - 2)
        ),
        "What costs the least time is asked for, and not what takes the least room": of(turned=True),
        "Where nothing is run again, nothing is there besides what is kept": of(
            again=lambda t, layers: (8 + 24 / t, max(2, 8 / t), 6 + 24 / t)
        ),
        "The inputs of the layers are not dealt out: each GPU has them whole": of(
            kept=lambda t: (8 + 24 / t, 4 + 16 / t, 2 / t)
        ),
        "The input of a layer has 2 bytes for each number": of(kept=lambda t: (8 + 24 / t, 4 + 16 / t, 4)),
        "GELU's result is dealt out: each GPU has 8/t s b h of it": of(again=lambda t, layers: (0, 8, 6 + 24 / t)),
        "In 'cheap' the peak is where a normalization's result, or GELU's, is there, the larger": of(
            again=lambda t, layers: (0, 2, 6 + 24 / t)
        ),
        "In 'cheap' the peak is where GELU's result, or a normalization's, is there, the larger": of(
            again=lambda t, layers: (0, 8 / t, 6 + 24 / t)
        ),
        "'cheap' runs both normalizations and GELU again: of 8 + 24/t it keeps 4 + 16/t": of(
            kept=lambda t: (8 + 24 / t, 8 + 16 / t, 2)
        ),
        "'cheap' runs GELU again as well: of 8 + 24/t it keeps 4 + 16/t": of(
            kept=lambda t: (8 + 24 / t, 4 + 24 / t, 2)
        ),
        "Without dropout there are no masks: a layer keeps 8 + 24/t": of(kept=lambda t: (10 + 24 / t, 4 + 16 / t, 2)),
    }


def of(
    kept=lambda t: (8 + 24 / t, 4 + 16 / t, 2), again=lambda t, layers: (0, max(2, 8 / t), 6 + 24 / t), turned=False
):
    def way(layers, batch, sequence, width, gpus, parameters, room):
        each = list(zip(("all", "cheap", "inputs only"), kept(gpus), again(gpus, layers)))
        for name, keeps, more in reversed(each) if turned else each:
            peak = 16 * parameters / gpus + batch * sequence * width * (layers * keeps + more)
            if peak <= room:
                return name, peak
        return "nothing", 0

    return way


class Peak(Values):
    def general(self, trial, right):
        (way, mine), (best, its) = trial.returned[0], right.returned[0]
        _, batch, sequence, width, *_ = trial.case.arguments(0)
        off = (mine - its) / (batch * sequence * width)
        if way == best == "cheap" and 0 < off <= 8:
            return (
                f"The peak of 'cheap' is {off:.4g} s b h too high. Of what runs again one result is there at a time: "
                "count the largest of the three, not two of them"
            )
        return super().general(trial, right)


class Choice(Target):
    name = "choice"

    def judge(self, exercise, trial, right):
        mine, best = trial.returned[0], right.returned[0]
        if mine[1] > trial.case.arguments(0)[-1] and mine[0] != "nothing":
            raise Wrong(f"{mine[0]!r} takes {mine[1] / GB:.1f} GB: it does not fit")
        if mine[0] != best[0]:
            raise Wrong(f"{mine[0]!r} fits, but {best[0]!r} fits, too, and costs less time")


@exercise(
    title="What to keep",
    minutes=25,
    difficulty=2,
    test_cases=test_cases,
    targets=[
        Own("your own arithmetic", BY_HAND, SOLVED),
        Peak(
            "the way and its bytes at the peak; where nothing fits ('nothing', 0)",
            names=("the way", "the number of bytes"),
            ways=ways(),
        ),
        Choice("it fits, and no way that costs less time does"),
    ],
    mistakes=[
        mistake(
            "Parameters, gradients and Adam are missing: 16 bytes for each parameter", "16 * parameters / gpus", "0"
        ),
        mistake(
            "The parameters are dealt out: each GPU has 1/gpus of them", "16 * parameters / gpus", "16 * parameters"
        ),
        mistake("Each layer keeps as much: it counts `layers` times", "layers * kept[way]", "kept[way]"),
        mistake(
            "In backward, what is computed again is there besides what is kept: one result in 'cheap', and the whole "
            "layer without its input in 'inputs only'",
            "one * max(2, 8 / gpus)",
            "0",
            "whole - 2 * one",
            "0",
        ),
        mistake(
            "The input of the layer that is run again is already among those that are kept: count it once",
            "whole - 2 * one",
            "whole",
        ),
        mistake(
            "Of the 32 s b h of a layer only 24 are dealt out: each GPU has the inputs and the results of both "
            "normalizations whole",
            "8 + 24 / gpus",
            "32 / gpus",
        ),
        mistake(
            "In 'cheap', one result of what runs again is there at a time: count a normalization's or GELU's, the "
            "larger",
            "max(2, 8 / gpus)",
            "(2 + 2 + 8 / gpus)",
        ),
        mistake("What fills the room to the last byte fits, too", "if peak <= room:", "if peak < room:"),
    ],
    hints=[
        "For each of the three ways, from the one that costs no time to the one that costs most: what is there at the "
        "peak? Return the first that fits.",
        "The table in section 1 of the notebook has all that a layer keeps. Which rows does 'cheap' still keep? In "
        "units of s b h, with t GPUs: 4 + 16/t. And what is one result of a normalization, and one of GELU?",
        "At the peak there are: the states, what all layers keep, and what has just been computed again: nothing in "
        "'all'; the larger of 2 s b h and 8/t s b h in 'cheap'; the whole layer without its input in 'inputs only'.",
    ],
    why="Many a first run ends out of memory, and the answer need not be a smaller model. Which bytes can go, and "
    "what "
    "that costs in time, can be said beforehand, but for the logits and what the allocator wastes.",
)
def what_to_keep(layers, batch, sequence, width, gpus, parameters, room):
    """Which activations should be kept, so that training fits into the ``room`` bytes of each GPU?

    The layers are those of section 1 of the notebook, with fused attention and without dropout, shared by ``gpus``
    GPUs by tensor parallelism. So are the ``parameters``, each of which takes 16 bytes with its gradient and Adam.
    From the cheapest to the dearest in time, there are three ways, as in section 3:

    - "all" keeps all activations;

    - "cheap" runs both normalizations and GELU again. In backward it has one of their results at a time besides what
      is kept, and its peak is where that is the largest of the three;

    - "inputs only" keeps 2 s b h bytes of each layer and runs the layer again. In backward it has everything else of
      one layer besides, as if "all" was kept of that layer.

    Return the name of the way that costs the least time among those that fit, and its bytes at the peak: for example
    ("cheap", 5.0e9). Return ("nothing", 0) if nothing fits. (Embeddings, logits, communication and gradients of
    activations are not counted here.)
    """
    one = sequence * batch * width
    # ? What does a layer keep in each way? What is there at the peak?
    whole = one * (8 + 24 / gpus)
    kept = {"all": whole, "cheap": one * (4 + 16 / gpus), "inputs only": 2 * one}
    again = {"all": 0, "cheap": one * max(2, 8 / gpus), "inputs only": whole - 2 * one}
    for way in ("all", "cheap", "inputs only"):
        peak = 16 * parameters / gpus + layers * kept[way] + again[way]
        if peak <= room:
            return way, peak
    return "nothing", 0
