"""A ring of tiny messages whose senders are busy for a part of the latency: LogP's o and L."""

from tinydist.lab.author import Own, Values, alone, exercise, mistake

from .chapter import ARITHMETIC, FORMULAS

US = 1e-6
INSIDE, BETWEEN, POST = 3.4 * US, 14 * US, 3 * US


def case(about, flight, busy, steps, **more):
    return alone(lambda: (list(flight), list(busy), steps), f"{about}, {steps} steps", **more)


def nodes(count, inside, between):
    """The links of a ring through so many nodes of eight."""
    return ([inside] * 7 + [between]) * count


def test_cases():
    two = nodes(2, INSIDE, BETWEEN)
    yield case("two nodes of eight, all in flight", two, [0.0] * 16, 30, facts=("microseconds", 144.4))
    yield case("two nodes of eight, senders wait", [0.0] * 16, two, 30, facts=("microseconds", 420))
    yield case("two nodes of eight, each message posted for 3 us", two, [POST] * 16, 30)
    yield case("four nodes of eight, each message posted for 1 us", nodes(4, 0.6 * US, 5 * US), [US] * 32, 62)
    yield case(
        "links that all differ", [5 * US, 1 * US, 8 * US, 2 * US, 3 * US], [1 * US, 4 * US, 0.0, 2 * US, 6 * US], 8
    )
    yield case("one sender is slow", [US] * 6, [US, US, 9 * US, US, US, US], 10)
    yield case("its link is slow as well", [US, US, 30 * US, US, US, US], [US, US, 9 * US, US, US, US], 10)
    yield case("two ranks", [7 * US, 2 * US], [1 * US, 3 * US], 2)
    yield case("a step before anybody can wait", [4 * US, 2 * US, 1 * US], [3 * US, 1 * US, 9 * US], 1)
    yield case("nothing to send", [US] * 4, [US] * 4, 0)


def ways():
    """What somebody may take otherwise."""
    return {
        "Each link has a latency of its own: it is not the mean of all that counts": of(
            flights=lambda f: [sum(f) / len(f)] * len(f)
        ),
        "Each link has a latency of its own: it is not the longest for all": of(flights=lambda f: [max(f)] * len(f)),
        "Each sender is busy for a time of its own: it is not the mean of all that counts": of(
            busies=lambda b: [sum(b) / len(b)] * len(b)
        ),
        "Each sender is busy for a time of its own: it is not the longest for all": of(
            busies=lambda b: [max(b)] * len(b)
        ),
        "A message goes to the next rank: it comes from the left neighbor": of(turned=True),
        "A rank is busy while it sends, and not while it receives": of(receives=True),
        "All ranks have to end, and not rank 0 alone": of(end=lambda ready: ready[0]),
        "All ranks have to end, and not the last one of the list alone": of(end=lambda ready: ready[-1]),
        "All ranks have to end: it is the last of them, and not their mean": of(
            end=lambda ready: sum(ready) / len(ready)
        ),
    }


def of(flights=list, busies=list, turned=False, receives=False, end=max):
    def way(flight, busy, steps):
        flight, busy, ready, by = flights(flight), busies(busy), [0.0] * len(flight), 1 if turned else -1
        for _ in range(steps):
            sent, ranks = [now + o for now, o in zip(ready, busy)], range(len(flight))
            come = [sent[(rank + by) % len(ready)] + flight[(rank + by) % len(ready)] for rank in ranks]
            ready = [max(sent[rank], come[rank] + (busy[rank] if receives else 0)) for rank in ranks]
        return end(ready)

    return way


@exercise(
    title="Busy, and in flight",
    minutes=15,
    difficulty=2,
    test_cases=test_cases,
    targets=[
        Own("your own arithmetic", ARITHMETIC, FORMULAS),
        Values(
            "the seconds of rings of 2 to 32 ranks: 144.4 us where all of the latency of the notebook's ring is in "
            "flight, "
            "420 us where its senders are busy for all of it, and others in between",
            ways=ways(),
        ),
    ],
    mistakes=[
        mistake(
            "This pays the whole latency in each step, as if a sender waited until its message has arrived. It is free "
            "again after busy[rank]: the rest is in flight, and only the way of one part counts",
            "max(sent[rank], sent[rank - 1] + flight[rank - 1])",
            "max(sent[rank] + flight[rank], sent[rank - 1] + flight[rank - 1])",
        ),
        mistake(
            "A message that arrives at a rank has come over the link of its left neighbor: flight[rank - 1]",
            "sent[rank - 1] + flight[rank - 1]",
            "sent[rank - 1] + flight[rank]",
        ),
        mistake(
            "Before its next step a rank must also have sent its own message, which keeps it busy",
            "max(sent[rank], sent[rank - 1]",
            "max(ready[rank], sent[rank - 1]",
        ),
        mistake(
            "A rank sees here what its left neighbor has become in this very step, and a message goes round the whole "
            "ring in one. Compute the new list from the old one, and replace it when it is whole",
            "ready = [max(sent[rank], sent[rank - 1] + flight[rank - 1]) for rank in range(len(flight))]",
            "for rank in range(len(flight)):\n            ready[rank] = max(ready[rank] + busy[rank], "
            "ready[rank - 1] + busy[rank - 1] + flight[rank - 1])",
        ),
        mistake(
            "All ranks have to end: the ring takes as long as the last of them",
            "return max(ready)",
            "return min(ready)",
        ),
    ],
    hints=[
        "Keep one time for each rank: when it can begin its next step. What two things does it wait for?",
        "In a step, rank r is done with sending at ready[r] + busy[r]. When does that message arrive at the next rank?",
        "ready of the next step is the later of: its own message is sent; its left neighbor's has arrived. Compute "
        "all of "
        "them from the old list before you replace it.",
    ],
    why="These are o and L of LogP. NCCL's model of a ring has both, and so have networks: what is in flight costs "
    "the way "
    "of one part, what keeps a sender busy costs every step. To tell them apart on your machine, time rings of several "
    "lengths.",
)
def ring_latency(flight, busy, steps):
    """How many seconds do ``steps`` steps of a ring take, with messages so small that their bytes cost nothing?

    In each step each rank sends one message to the next rank (the last one to rank 0). Sending keeps rank r busy for
    ``busy[r]`` seconds; then the message is in flight for ``flight[r]`` seconds, while rank r may go on. A rank begins
    its next step when it has sent its own message, and that of its left neighbor has arrived. All begin at 0. The ring
    has ended when all ranks could begin one more step.
    """
    ready = [0.0] * len(flight)
    for _ in range(steps):
        # ? When has each rank sent? When has it received, and is ready?
        sent = [now + o for now, o in zip(ready, busy)]
        ready = [max(sent[rank], sent[rank - 1] + flight[rank - 1]) for rank in range(len(flight))]
        # .
    return max(ready)
