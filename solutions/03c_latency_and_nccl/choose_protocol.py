"""NCCL's choice of a protocol for a ring: latency + bytes / bandwidth of each, with the host's overhead."""

from math import isclose

from tinydist.hardware import nccl
from tinydist.lab.author import Own, Values, alone, exercise, mistake

from .chapter import ARITHMETIC, FORMULAS

GB = 1e9
SIZES = {"8 bytes": 8, "64 kB": 64_000, "1 MB": 1_000_000, "20 MB": 20_000_000, "1 GB": 1_000_000_000}
# Bytes/s of LL, LL128 and Simple: in a node, and over nodes
FAST, SLOW = (87.7 * GB, 170 * GB, 235 * GB), (20 * GB, 160 * GB, 192 * GB)
PODS = {  # GPUs in a node, nodes, processor of the hosts, bytes/s
    "8 A100": (8, 1, "Intel", FAST),
    "2 x 8 A100, Intel": (8, 2, "Intel", SLOW),
    "2 x 8 A100, AMD": (8, 2, "AMD", SLOW),
    "32 x 8 A100, AMD": (8, 32, "AMD", SLOW),
    "3 x 6 A100, AMD": (6, 3, "AMD", SLOW),
    "4 nodes of 1 GPU": (1, 4, "Intel", (6 * GB, 20 * GB, 24 * GB)),
}
# Of nobody's machine: LL has a long start, and to post by LL128 takes longer than to cross the network.
US = 1e-6
OTHER = {
    "LL": (100 * US, 0.5 * US, 2.7 * US, 1 * US, 10 * GB),
    "LL128": (5 * US, 1 * US, 4 * US, 6 * US, 20 * GB),
    "Simple": (200 * US, 3 * US, 14 * US, 3 * US, 24 * GB),
}


def numbers(about):
    """What NCCL knows, by protocol."""
    *_, cpu, bandwidths = PODS[about]
    inside, between = nccl.STEP["NVLink"]["ring"], nccl.STEP["network"]["ring"]
    seconds = [nccl.BASE["ring"], inside, between, nccl.POST[cpu]]
    return {
        protocol: (*(each[protocol] for each in seconds), bandwidth)
        for protocol, bandwidth in zip(nccl.PROTOCOLS, bandwidths, strict=True)
    }


def case(about, size):
    per_node, nodes, _, _ = PODS[about]
    return alone(lambda: (SIZES[size], per_node, nodes, numbers(about)), f"{size} on {about}")


def test_cases():
    for about in PODS:
        for size in SIZES:
            yield case(about, size)
    for size in ("8 bytes", "64 kB"):
        yield alone(lambda size=size: (SIZES[size], 4, 2, dict(OTHER)), f"{size} on 2 x 4, with a long start of LL")


class Choice(Values):
    def alike(self, mine, other, right):
        """The same name alone says nothing: there are three."""
        return 2 * (super().alike(mine, other, right) == 2)

    def general(self, trial, right):
        """In steps: how far its seconds are from what is right of its own choice."""
        nbytes, per_node, nodes, protocols = trial.case.arguments(0)
        name, mine = trial.returned[0]
        if name not in protocols:
            return ""
        base, inside, between, posting, bandwidth = protocols[name]

        def seconds(base=base, inside=inside, between=between, posting=posting, nbytes=nbytes):
            return choose_protocol(nbytes, per_node, nodes, {name: (base, inside, between, posting, bandwidth)})[1]

        p = per_node * nodes
        others = {
            f"The seconds are right, and {right.returned[0][0]} takes fewer. Are yours of that more, or is it not "
            "the least that you take?": seconds(),
            "base is missing: each call takes it once": seconds(base=0),
            "base is paid once in a call, not once in each step": seconds(base=base * 2 * (p - 1)),
            "The bytes are missing": seconds(nbytes=0),
            "The steps are missing": seconds(inside=0, between=0, posting=0),
            "Steps inside of a node are missing": seconds(inside=0, posting=0),
            "Steps between nodes are missing": seconds(between=0),
            "Each rank sends 2 (p-1)/p of the bytes: there and back": seconds(nbytes=nbytes / 2),
            "Each rank sends 2 (p-1)/p of the bytes, and not twice all of them": seconds(
                nbytes=nbytes * p / max(1, p - 1)
            ),
            "There are `nodes` nodes of `per_node` GPUs: p is their product": choose_protocol(
                nbytes, 1, max(nodes, per_node), {name: (base, inside, between, posting, bandwidth)}
            )[1],
            "Units: a byte has 8 bits": seconds(nbytes=nbytes * 8),
        }
        found = [words for words, each in others.items() if isclose(mine, each, rel_tol=1e-9)]
        if 0 < len(found) < 3:
            told = ". Or: ".join(found)
            return f"By {name}: {told[0].lower()}{told[1:]}"
        off = mine - seconds()
        step = max(inside, posting) if nodes > 1 else inside
        units = {"a step between nodes": between, "a step inside a node": step}
        units["a step between nodes, in place of one inside,"] = between - step
        for what, seconds in units.items():
            count = off / seconds if seconds else 0
            if 0.5 < abs(count) < 1000 and abs(count - round(count)) < 1e-6:
                return f"By {name} it has {abs(round(count))} x {what} too {'many' if count > 0 else 'few'}"
        return super().general(trial, right)


@exercise(
    title="Choose the protocol of a ring",
    minutes=20,
    difficulty=3,
    test_cases=test_cases,
    targets=[
        Own("your own arithmetic", ARITHMETIC, FORMULAS),
        Choice(
            f"the fastest protocol, and its seconds, on {len(PODS) + 1} clusters, for 8 bytes to 1 GB (8 bytes on "
            "two nodes of eight with processors of AMD: LL, 68.0 us)",
            names=("the protocol", "the number of seconds"),
        ),
    ],
    mistakes=[
        mistake(
            "This pays the network's latency in every step. It is in flight: 2 (k-1) steps pay it, the others pay a "
            "step inside a node",
            "(steps - crossing) * step + crossing * between",
            "steps * between",
        ),
        mistake(
            "Over several nodes the host posts each message: a step takes posting seconds at least, however short it "
            "is inside a node",
            "step = max(inside, posting)",
            "step = inside",
        ),
        mistake(
            "In a single node no message goes to the network, so nothing is posted",
            "if nodes > 1:",
            "if True:",
        ),
        mistake(
            "The host posts while NVLink works: a step takes the longer of the two, not both",
            "step = max(inside, posting)",
            "step = inside + posting",
        ),
        mistake(
            "Posting holds up the other steps alone: a crossing takes between, even if posting takes longer",
            "crossing * between",
            "crossing * max(between, posting)",
        ),
        mistake(
            "A small tensor need not go by LL: that depends on its start and steps. Compute all, and take the least",
            "return min(",
            'return ("LL", seconds["LL"]) if nbytes < 1e6 else min(',
        ),
        mistake(
            "These are bus bandwidths: each rank sends 2 (p-1)/p of the bytes, not all of them once",
            "2 * (p - 1) / p * nbytes / bandwidth",
            "nbytes / bandwidth",
        ),
        mistake(
            "Each protocol has a base besides its steps, which every call pays once",
            "latency = base + ",
            "latency = ",
        ),
    ],
    hints=[
        "A protocol is one line: latency + bytes / bandwidth. Compute it for each, and take the least. The ring has "
        "2 (p-1) steps: how many of them cross from one node to another, in the way of one part?",
        "2 (k-1) steps over k nodes pay between. All others pay inside, but over several nodes not less than posting.",
        "seconds = base + (steps - crossing) * step + crossing * between + 2 (p-1)/p * nbytes / bandwidth.",
    ],
    why="This is ncclTopoTuneModel for a ring. Its table for your machine is printed with NCCL_DEBUG=INFO and "
    "NCCL_DEBUG_SUBSYS=TUNING: compare it with yours, and overrule it with NCCL_PROTO where a measurement disagrees.",
)
def choose_protocol(nbytes, per_node, nodes, protocols):
    """Return the name of the fastest protocol for an all-reduce of ``nbytes`` by a ring, and the seconds it takes.

    There are ``nodes`` nodes of ``per_node`` GPUs. ``protocols`` is {name: (base, inside, between, posting,
    bandwidth)}: the seconds that every call takes, a step inside a node, a step between nodes, and what the host needs
    to post a message to the network; and the bus bandwidth in bytes per second. Latency is in flight, as NCCL counts
    it: of the 2 (p-1) steps, 2 (nodes-1) take ``between``. Each of the others takes ``inside``, but over several nodes
    at least ``posting``.
    """
    p = per_node * nodes
    seconds = {}
    for name, (base, inside, between, posting, bandwidth) in protocols.items():
        # ? Latency, and bytes / bandwidth
        steps, crossing = 2 * (p - 1), 2 * (nodes - 1)
        step = inside
        if nodes > 1:
            step = max(inside, posting)
        latency = base + (steps - crossing) * step + crossing * between
        seconds[name] = latency + 2 * (p - 1) / p * nbytes / bandwidth
        # .
    return min(seconds.items(), key=lambda item: item[1])
