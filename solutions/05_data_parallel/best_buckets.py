"""Cut a model into the buckets with which its gradients are averaged soonest."""

import math

from tinydist.lab.author import Own, Values, Wrong, alone, exercise, mistake

from .chapter import SOLVED

MB = 1e6


def case(about, backward, nbytes, latency, bandwidth):
    return alone(lambda: (backward, nbytes, latency, bandwidth), f"{about}: {len(backward)} layers")


def test_cases():
    even = [1e-3] * 8, [16 * MB] * 8
    yield case("no latency, where each layer is a bucket", *even, 0.0, 25e9)
    yield case("a network that is faster than backward", *even, 50e-6, 25e9)
    yield case("a network that is slower than backward", *even, 300e-6, 10e9)
    yield case("a latency so long that one bucket is best", [1e-4] * 4, [1 * MB] * 4, 2e-3, 10e9)
    yield case("a large table that is ready last", [1e-3] * 6, [8 * MB] * 5 + [60 * MB], 200e-6, 12e9)
    yield case("a large head that is ready first", [2e-3] + [5e-4] * 6, [60 * MB] + [4 * MB] * 6, 400e-6, 12e9)
    yield case("norms between matrices", [1e-3, 2e-5] * 5, [16 * MB, 2e4] * 5, 150e-6, 25e9)
    yield case("a single layer", [1e-3], [16 * MB], 50e-6, 25e9)


def averaged_at(counts, backward, nbytes, latency, bandwidth):
    """Seconds after the beginning of backward."""
    now = end = layer = 0
    for count in counts:
        now += sum(backward[layer : layer + count])
        end = max(now, end) + latency + sum(nbytes[layer : layer + count]) / bandwidth
        layer += count
    return end


def rules():
    """By which somebody may choose."""
    return {
        "Each all-reduce pays the latency": by(latencies=0),
        "An all-reduce takes latency + n / bandwidth: n bytes travel once here": by(often=2),
        "All-reduces go one after the other: each waits for the one before": by(queue=False),
        "Backward goes on while an all-reduce runs: neither waits for the other": by(blocks=True),
        "Layers are listed in the order in which backward reaches them: the first of the list is ready first": by(
            turned=True
        ),
        "The bytes are listed in the order in which backward reaches the layers, as the seconds are": by(
            bytes_turned=True
        ),
        "An all-reduce starts when its bucket is full, and not when backward comes to it": by(early=True),
        "The end of the last all-reduce counts, and not the seconds of all": by(last=False),
        "An all-reduce starts as soon as its bucket is full, and not at the end of backward": by(late=True),
    }


def by(
    latencies=1, often=1, queue=True, blocks=False, turned=False, bytes_turned=False, early=False, late=False, last=True
):
    def cost(counts, backward, nbytes, latency, bandwidth):
        backward = backward[::-1] if turned else backward
        nbytes = nbytes[::-1] if turned or bytes_turned else nbytes
        now = end = layer = together = 0
        for count in counts:
            begun, takes = now, latencies * latency + often * sum(nbytes[layer : layer + count]) / bandwidth
            now = (max(now, end) if blocks else now) + sum(backward[layer : layer + count])
            full = begun if early else sum(backward) if late else now
            end = max(full, end) + takes if queue else max(full + takes, end)
            together += takes
            layer += count
        return end if last else together

    return cost


class Buckets(Values):
    """Of several that are equally good any will do."""

    def seen(self, trial):
        found = super().seen(trial)
        return found and {place: each for place, each in found.items() if place[1] != "the buckets"}

    def general(self, trial, right):
        """By which rule these are the best, in all cases."""
        chosen = []
        for case in test_cases():
            run = trial.again(watched=True, arguments=case.arguments)
            if run.error:
                return ""
            chosen.append((list(map(int, run.returned[0][1].split(", "))), case.arguments(0)))
        for words, cost in rules().items():
            chance = 1.0  # that another choice would be as good
            for mine, given in chosen:
                costs = sorted(cost(counts, *given) for counts in cuts(len(given[0])))
                if cost(mine, *given) > costs[0] * (1 + 1e-9):
                    break
                chance *= sum(each <= costs[0] * (1 + 1e-9) for each in costs) / len(costs)
            else:
                if chance < 0.01:
                    return words
        for words, way in greedy().items():
            if all(way(*given) == mine for mine, given in chosen):
                return words
        given, counts = trial.case.arguments(0), [mine for mine, _ in chosen]
        if all(len({*mine[:-1]}) < 2 and mine[-1] <= mine[0] for mine in counts) and any(len(m) > 2 for m in counts):
            return "All buckets have as many layers here: they may have different numbers, and some cuts are better"
        if max(map(len, counts)) == 2:
            return "There are never more than two buckets here: more may end earlier"
        ends = [averaged_at(counts, *given) for counts in cuts(len(given[0]))]
        mine = trial.returned[0][0]
        better = sum(end < mine * (1 - 1e-9) for end in ends)
        return (
            f"Of {len(ends)} ways to cut, {better} end earlier than this one: is each of them tried?" if better else ""
        )


def greedy():
    """Ways that go through the layers once, and never look back."""
    look = (
        "this goes through the layers once, and what is best may be to wait, or to send less: compare all ways to cut"
    )
    return {
        f"A bucket is sent as soon as the network is idle: {look}": once(
            lambda now, end, size, lasts, left: now >= end
        ),
        f"A bucket ends as soon as its bytes take longer than the latency: {look}": once(
            lambda now, end, size, lasts, left: lasts[1] >= lasts[0]
        ),
        f"A bucket ends as soon as its bytes take longer than the next backward: {look}": once(
            lambda now, end, size, lasts, left: left and sum(lasts) >= left[0]
        ),
        **{
            f"A bucket ends with {words}, whatever the network is: {look}": once(
                lambda now, end, size, lasts, left, most=most: size >= most
            )
            for words, most in {"25 MB": 25e6, "25 MiB": 25 * 2**20, "1 MB": 1e6, "10 MB": 1e7, "32 MB": 32e6}.items()
        },
    }


def once(full):
    def way(backward, nbytes, latency, bandwidth):
        counts, now, end, size, count = [], 0, 0, 0, 0
        for layer, seconds in enumerate(backward):
            now, size, count = now + seconds, size + nbytes[layer], count + 1
            if layer == len(backward) - 1 or full(now, end, size, (latency, size / bandwidth), backward[layer + 1 :]):
                counts.append(count)
                end, size, count = max(now, end) + latency + size / bandwidth, 0, 0
        return counts

    return way


def cuts(layers):
    for bits in range(2 ** (layers - 1)):
        counts = [1]
        for place in range(layers - 1):
            counts = [*counts, 1] if bits >> place & 1 else [*counts[:-1], counts[-1] + 1]
        yield counts


def seconds(answer, backward, nbytes, latency, bandwidth):
    counts = answer(backward, nbytes, latency, bandwidth)
    whole = isinstance(counts, list | tuple) and all(type(each) is int and each > 0 for each in counts)
    if not whole or sum(counts) != len(backward):
        raise Wrong(
            f"it returned {counts!r}, where a list of integers >= 1 is right, the layers of each bucket: together "
            f"{len(backward)}"
        )
    return averaged_at(counts, backward, nbytes, latency, bandwidth), ", ".join(map(str, counts))


START = "max(now, end) + latency"


@exercise(
    title="The best buckets",
    minutes=25,
    difficulty=3,
    test_cases=test_cases,
    program=seconds,
    targets=[
        Own("it computes, and runs no wrapper", "compute it, from the seconds and bytes that you are given", SOLVED),
        Buckets(
            "the seconds until the last gradient is averaged, with the buckets that you return: as few as any buckets "
            "take. 1 to 10 layers, equal and unequal; networks slower and faster than backward",
            names=("the result", "the buckets"),
        ),
    ],
    mistakes=[
        mistake(
            "It is one bucket for everything, which starts when all of backward has ended. An all-reduce starts as "
            "soon as its own bucket is full: more buckets would end earlier",
            "if end < best",
            "if counts == [layers]",
        ),
        mistake(
            "It is a bucket for each layer, where fewer would pay fewer latencies",
            "if end < best",
            "if counts == [1] * layers",
        ),
        mistake(
            "It is the best cut from the other end: the first bucket has the layers that backward reaches first",
            "return chosen",
            "return chosen[::-1]",
        ),
        mistake(
            "All-reduces go one after the other: each starts when its bucket is full *and* the one before has ended",
            START,
            "now + latency",
        ),
        mistake("Each all-reduce pays the latency, also one that waits for the one before", START, "max(now, end)"),
        mistake(
            "Each bucket has its own bytes: those of its layers, and not as many for all of them",
            "sum(nbytes[layer : layer + count])",
            "sum(nbytes) / len(counts)",
        ),
    ],
    hints=[
        "Follow one choice of buckets from the left: when is the first bucket full, when has its all-reduce ended? "
        "Then the second.",
        "A bucket is full when backward of its last layer has ended. Its all-reduce starts then, or when the one "
        "before has ended, if that is later.",
        "end = max(full, end) + latency + bytes / bandwidth, from bucket to bucket. Keep the counts with the smallest "
        "end.",
    ],
    why="PyTorch takes 25 MiB for all models and all networks, and a first bucket of 1 MiB, because it does not know "
    "your network. Small models on slow networks gain from another choice, and a large embedding that is ready last is "
    "a tail that no choice of buckets hides.",
)
def best_buckets(backward, nbytes, latency, bandwidth):
    """Cut a model into buckets so that the last gradient is averaged as soon as possible.

    Layers are listed in the order in which backward reaches them: backward of layer i takes ``backward[i]`` seconds,
    and its gradients have ``nbytes[i]`` bytes. A bucket has neighbours in this list, and is full when backward of its
    last layer has ended. The all-reduce of a full bucket of n bytes takes latency + n / bandwidth seconds, beside
    backward, and one runs at a time, in the order of the buckets.

    Return how many layers each bucket has, for example [1, 3, 4] of 8 layers.
    """
    layers = len(backward)
    best, chosen = math.inf, None
    for cuts in range(2 ** (layers - 1)):  # each bit: is there a cut after this layer?
        counts = [1]
        for place in range(layers - 1):
            if cuts >> place & 1:
                counts.append(1)
            else:
                counts[-1] += 1
        # ? When has the last all-reduce of these buckets ended? Keep the best counts.
        now = end = layer = 0
        for count in counts:
            now += sum(backward[layer : layer + count])
            end = max(now, end) + latency + sum(nbytes[layer : layer + count]) / bandwidth
            layer += count
        if end < best:
            best, chosen = end, counts
        # .
    return chosen
