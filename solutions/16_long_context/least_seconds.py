"""The least recomputation for a budget of bytes, over a chain of layers, by dynamic programming."""

import math
import random

from tinydist.lab.author import Own, Values, alone, exercise, mistake

from .chapter import BY_HAND, SOLVED


def case(about, layers, budget):
    return alone(lambda: ([*layers], budget), f"{about}, {len(layers)} layers, a budget of {budget}")


def drawn(seed, count, share):
    generator = random.Random(seed)
    layers = []
    for _ in range(count):
        given = generator.randint(1, 9)
        layers.append((given, given + generator.randint(0, 12), generator.randint(1, 9)))
    return case("drawn at random", layers, int(share * sum(kept for _, kept, _ in layers)))


def test_cases():
    yield case("room for all", [(1, 5, 2), (1, 5, 3)], 10)
    yield case("nothing fits", [(4, 5, 2), (4, 5, 3)], 7)
    yield case("one is forgotten", [(1, 5, 2), (1, 5, 3)], 9)
    yield case("to forget the last one saves nothing", [(1, 5, 9), (1, 5, 1)], 9)
    yield case("two together", [(4, 5, 1), (4, 5, 1), (4, 9, 7)], 13)
    yield case("small and slow, large and fast", [(1, 6, 9), (1, 18, 2)] * 3, 50)
    for seed, (count, share) in enumerate([(4, 0.5), (5, 0.6), (6, 0.4), (6, 0.7), (8, 0.5), (12, 0.6)]):
        yield drawn(seed, count, share)


@exercise(
    title="The least recomputation for a budget",
    minutes=30,
    difficulty=4,
    test_cases=test_cases,
    targets=[
        Own("neither the library's choice nor a solver", BY_HAND, SOLVED),
        Values(
            "the least seconds of all choices within the budget; -1 if none is; for up to 12 layers, with 75,025 "
            "choices: too many to try all",
            names=("seconds",),
        ),
    ],
    mistakes=[
        mistake(
            "Runs of one layer alone are tried: layers that are recomputed together keep one input for all",
            "for start in range(end):",
            "for start in range(end - 1, end):",
        ),
        mistake(
            "While a run's backward computes, all activations of the run are there, besides what those before it keep",
            "peak = held + sum(kept for _, kept, _ in run)",
            "peak = held + run[0][0]",
        ),
        mistake(
            "The runs behind a run are gone when its backward begins: each run must fit by itself, with those before "
            "it. What the runs before it keep is not to be left out",
            "peak = held + sum",
            "peak = sum",
        ),
        mistake(
            "Only the fastest way is kept for each number of layers. One that holds less may be the only one with room "
            "for what follows: keep all that no other beats in both",
            "if seconds < least:",
            "if seconds <= min(each for _, each in ways):",
        ),
    ],
    hints=[
        "For the first n layers, a way to cut them is known by two numbers alone: the bytes that it holds, and the "
        "seconds that it recomputes. Begin with {(0, 0)} for n = 0.",
        "The last run of the first `end` layers begins at some `start`: extend each way of the first `start` layers by "
        "it. It must fit: held + all `kept` of the run <= budget.",
        "A kept run is one layer: (held + kept, seconds). A recomputed one may be longer: (held + the first input, "
        "seconds + all its seconds).",
        "Sort the ways of `end` layers by bytes, and keep one only if its seconds are fewer than all before it.",
    ],
    why="PyTorch's compiler solves a problem like this for the operators of a graph "
    "(`torch._functorch.config.activation_memory_budget`), and torchtitan offers it as `memory_budget`. That a "
    "run must fit with what lies before it is why the last layers are the last to be forgotten.",
)
def least_seconds(layers, budget):
    """The fewest seconds that must be computed again so that no more than ``budget`` bytes are held; -1 if none fits.

    ``layers``: a list of (input, kept, seconds), whole numbers: the bytes of the layer's input, the bytes that its
    backward needs (input included), and the seconds of its forward. A choice cuts the layers into runs, in order: one
    layer that is kept (it holds ``kept`` until its backward), or one or more that are recomputed together (they hold
    the first one's ``input``, and cost all their seconds). While the backward of a run computes, the run holds all its
    ``kept``, the runs before it what they hold, and those behind it nothing.
    """
    # ? Which ways are there for no layers?
    # ? How does a way of the first `start` layers go on to `end`: with a layer that is kept, with a run that is not?
    # ? Which ways of `end` layers may be dropped?
    fronts = [[(0, 0)]]  # bytes held, seconds
    for end in range(1, len(layers) + 1):
        ways = []
        for start in range(end):
            run = layers[start:end]
            for held, seconds in fronts[start]:
                peak = held + sum(kept for _, kept, _ in run)
                if peak <= budget:
                    ways.append((held + run[0][0], seconds + sum(each for _, _, each in run)))
                    if len(run) == 1:
                        ways.append((held + run[0][1], seconds))
        front, least = [], math.inf
        for held, seconds in sorted(ways):
            if seconds < least:
                front.append((held, seconds))
                least = seconds
        fronts.append(front)
    return min((seconds for _, seconds in fronts[-1]), default=-1)
