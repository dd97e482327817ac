"""Which activations fit? The way of keeping them that costs the least time, and what it takes at the peak."""

from tinydist.lab.author import Own, Target, Values, Wrong, alone, exercise, mistake

from .chapter import BY_HAND, SOLVED

GB = 1e9


def case(about, layers, batch, sequence, width, heads, gpus, parameters, room):
    counts = f"{layers} layer{'s' * (layers > 1)} on {gpus} GPU{'s' * (gpus > 1)}"
    shape = f"{counts} of {room / GB:g} GB, batch {batch}"
    shape += f", sequences of {sequence:,}"
    arguments = layers, batch, sequence, width, heads, gpus, parameters, room
    return alone(lambda: arguments, f"{about}: {shape}")


def test_cases():
    yield case("the model of the notebook", 48, 4, 2048, 6144, 64, 8, 22.07e9, 80 * GB)
    yield case("the same model on larger GPUs", 48, 4, 2048, 6144, 64, 8, 22.07e9, 141 * GB)
    yield case("the same model with longer sequences", 48, 1, 8192, 6144, 64, 8, 22.07e9, 80 * GB)
    yield case("the same model on a little less memory", 48, 4, 2048, 6144, 64, 8, 22.07e9, 76 * GB)
    yield case("the same model on four GPUs", 48, 4, 2048, 6144, 64, 4, 22.07e9, 80 * GB)
    yield case("a small model", 12, 8, 1024, 768, 12, 1, 0.124e9, 16 * GB)
    yield case("a small model, a large batch", 12, 48, 1024, 768, 12, 1, 0.124e9, 16 * GB)
    yield case("a model that fills the room to the byte", 4, 1, 2048, 4096, 32, 8, 8e9, 16_520_093_696)
    yield case("one layer", 1, 1, 4096, 4096, 32, 2, 0.2e9, 5 * GB)
    yield case(
        "just enough for the inputs, but not for the layer that is run again", 24, 16, 2048, 2048, 16, 1, 1.2e9, 24 * GB
    )


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
    minutes=15,
    difficulty=2,
    test_cases=test_cases,
    targets=[
        Own("your own arithmetic", BY_HAND, SOLVED),
        Values("the way and its bytes; where nothing fits ('nothing', 0)", names=("the way", "the number of bytes")),
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
            "In backward one layer after the other is computed again, and then it is there whole: add what of it was "
            "not kept",
            " + whole - kept[way]",
            "",
        ),
        mistake(
            "Of the 34 s b h without maps only 24 are dealt out: each GPU has the inputs of attention, MLP and norms "
            "whole, and the masks of the additions",
            "10 + 24 / gpus",
            "34 / gpus",
        ),
        mistake("The heads are dealt out over the GPUs, and so are their maps", "/ (width * gpus)", "/ width"),
        mistake(
            "The first way that fits is to be the one that costs the least time: all, then no maps, then inputs only",
            '("all", "no maps", "inputs only")',
            '("inputs only", "no maps", "all")',
        ),
        mistake("What fills the room to the last byte fits, too", "if peak <= room:", "if peak < room:"),
    ],
    hints=[
        "For each of the three ways, from the one that costs no time to the one that costs most: what is there at the "
        "peak? Return the first that fits.",
        "With one = s b h, a layer keeps one (10 + 24/t + 5 a s / (h t)) bytes, or one (10 + 24/t) without maps, or 2 "
        "one if only its input is kept. The states are 16 bytes for each parameter.",
        "At the peak there are: the states, what all layers keep, and of the one layer that is just run again whatever "
        "was not kept of it.",
    ],
    why="Many a first run ends out of memory, and the answer need not be a smaller model. Which bytes can go, and what "
    "that costs in time, can be said beforehand, to within the memory that the allocator wastes.",
)
def what_to_keep(layers, batch, sequence, width, heads, gpus, parameters, room):
    """Which activations should be kept, so that training fits into the ``room`` bytes of each GPU?

    The layers are shared by ``gpus`` GPUs, tensor parallel, as in section 5 of the notebook, and so are the
    ``parameters``, of which each takes 16 bytes with its gradient and Adam. There are three ways: "all" keeps all
    activations, "no maps" computes the attention maps again, and "inputs only" keeps 2 s b h bytes of each layer and
    computes everything again. At the peak, while a layer is computed again, all of its activations are there.

    Return the name of the way that costs the least time among those that fit, and its bytes at the peak: for example
    ("no maps", 5.0e9). Return ("nothing", 0) if nothing fits. (Embeddings, logits and communication are not
    counted here.)
    """
    one = sequence * batch * width
    # ? What does a layer keep in each way? What is there at the peak?
    without_maps = one * (10 + 24 / gpus)
    whole = without_maps + one * 5 * heads * sequence / (width * gpus)
    kept = {"all": whole, "no maps": without_maps, "inputs only": 2 * one}
    for way in ("all", "no maps", "inputs only"):
        peak = 16 * parameters / gpus + layers * kept[way] + whole - kept[way]
        if peak <= room:
            return way, peak
    return "nothing", 0
