"""Latencies of a server from the log of a benchmark, in a window of time; and whether its queue grows."""

from random import Random

from tinydist.lab.author import Own, Part, alone, exercise, mistake

from .chapter import SOLVED


def logged(about, number, start, end, seed=0, slow=1.0, tokens=40):
    """Requests that come one after another, and take longer and longer if ``slow`` is above 1."""
    random, requests, arrival, busy = Random(seed), [], 0.0, 1.0
    for _ in range(number):
        count = random.randint(1, tokens)
        first = arrival + busy * random.randint(1, 3072) / 1024
        requests.append((arrival, first, first + (count - 1) * random.randint(1, 16) / 64, count))
        arrival += random.randint(1, 16) / 8
        busy *= slow
    random.shuffle(requests)
    return alone(lambda: ([*requests], start, end), f"{about}: {number} requests, from {start:g} to {end:g} s")


def given(about, requests, start, end):
    return alone(lambda: ([*requests], start, end), f"{about}, from {start:g} to {end:g} s")


def test_cases():
    yield given("two requests", [(0.0, 1.0, 3.0, 3), (1.0, 1.5, 5.5, 9)], 0.0, 10.0)
    yield given("one of a single token", [(0.0, 1.0, 1.0, 1), (1.0, 1.5, 5.5, 9)], 0.0, 10.0)
    yield given(
        "at the edges",
        [(0.0, 1.0, 2.0, 3), (0.5, 8.5, 8.5, 1), (2.0, 2.5, 3.5, 4), (3.0, 5.0, 8.0, 4), (4.0, 9.0, 9.5, 2)],
        2.0,
        4.0,
    )
    yield logged("100 requests of a steady state", 100, 0.0, 1000.0)
    yield logged("75 requests, all of them", 75, 0.0, 1000.0, seed=4)
    yield logged("a window in the middle", 300, 60.0, 200.0, seed=1)
    yield logged("a queue that grows", 250, 40.0, 180.0, seed=2, slow=1.02)
    yield logged("short answers", 201, 10.0, 170.0, seed=3, tokens=3)


WINDOW = "[each for each in requests if start <= each[0] < end]"
P99 = "waits[-(-99 * len(waits) // 100) - 1]"

COUNT = "arrival <= time < last"
WAIT = [
    ("This is the longest wait: 99 of 100 are asked for, and one may wait longer", P99, "waits[-1]"),
    (
        "The place is rounded down: then less than 99 of 100 wait no longer",
        P99,
        "waits[max(0, 99 * len(waits) // 100 - 1)]",
    ),
    (
        "The place is rounded down, and counted from 0: it is ceil(0.99 n), counted from 1",
        P99,
        "waits[99 * len(waits) // 100]",
    ),
    (
        "This lies between two waits: the least wait that 99 of 100 do not exceed is one of them",
        P99,
        "(lambda x: waits[int(x)] + (x - int(x)) * (waits[min(int(x) + 1, len(waits) - 1)] - waits[int(x)]))"
        "(0.99 * (len(waits) - 1))",
    ),
    (
        "The waits are not sorted",
        "sorted(first - arrival for arrival, first, _, _ in seen)",
        "[first - arrival for arrival, first, _, _ in seen]",
    ),
    (
        "This is until the last token: the time to the first one is asked for",
        "first - arrival for arrival, first, _, _",
        "last - arrival for arrival, _, last, _",
    ),
    (
        "The window goes by arrival, and not by the first token",
        WINDOW,
        WINDOW.replace("each[0]", "each[1]") + " or requests",
    ),
    (
        "The window goes by arrival, and not by the last token",
        WINDOW,
        WINDOW.replace("each[0]", "each[2]") + " or requests",
    ),
    ("Who comes at `end` is behind the window", WINDOW, WINDOW.replace("< end", "<= end")),
    ("Who comes at `start` is in the window", WINDOW, WINDOW.replace("start <=", "start <") + " or requests"),
    ("This is the shortest: the list is sorted the other way round", P99, "waits[0]"),
    ("This is the 95th of 100", P99, "waits[-(-95 * len(waits) // 100) - 1]"),
    ("This is the 90th of 100", P99, "waits[-(-90 * len(waits) // 100) - 1]"),
]
THERE = [
    ("Who comes at that time has come by then", COUNT, "arrival < time < last"),
    ("Who gets the last token at that time gets it no later, and is gone", COUNT, "arrival <= time <= last"),
    (
        "Who comes at that time has come, and who ends then is gone: it is the other way round here",
        COUNT,
        "arrival < time <= last",
    ),
    (
        "A request that waits for its first token is there, too",
        "arrival <= time < last for arrival, _, last, _",
        "first <= time < last for _, first, last, _",
    ),
    ("These have come by then, and some are gone", COUNT, "arrival <= time"),
    ("These are those that come later, and those that are there", COUNT, "time < last"),
]


@exercise(
    title="What a benchmark's log says",
    minutes=20,
    difficulty=2,
    test_cases=test_cases,
    targets=[
        Own("your own arithmetic", "here it is arithmetic, and yours", SOLVED),
        Part("p99", "p99", "of the requests that come in the window: 99 of 100 wait no longer", variants=WAIT),
        Part(
            "TPOT",
            "TPOT",
            "the mean over requests, each counted alike",
            variants=[
                (
                    "This is the mean over all gaps: a request with many counts more. Take the mean over requests",
                    "sum(gaps) / len(gaps)",
                    "sum(b - a for _, a, b, _ in seen) / sum(n - 1 for *_, n in seen)",
                ),
                (
                    "The time from one token to the next begins with the first token, and not with the arrival",
                    "(last - first) / (tokens - 1) for _, first,",
                    "(last - first) / (tokens - 1) for first, _,",
                ),
                (
                    "A request of one token has no gap, and is not a gap of 0",
                    "sum(gaps) / len(gaps)",
                    "sum(gaps) / len(seen)",
                ),
                (
                    "This is one gap in the middle, or the largest: the mean is asked for",
                    "sum(gaps) / len(gaps)",
                    "max(gaps)",
                ),
                ("This is the median: the mean is asked for", "sum(gaps) / len(gaps)", "sorted(gaps)[len(gaps) // 2]"),
                ("This is the sum over the requests: their mean is asked for", "sum(gaps) / len(gaps)", "sum(gaps)"),
            ],
        ),
        Part(
            "per token",
            "per token",
            "the mean over requests, from arrival to last token",
            variants=[
                (
                    "This is the mean over all tokens: a request with many counts more. Take the mean over requests",
                    "sum(latencies) / len(latencies)",
                    "sum(b - a for a, _, b, _ in seen) / sum(n for *_, n in seen)",
                ),
                (
                    "The latency is divided by the tokens, all of them, and not by the gaps",
                    "(last - arrival) / tokens",
                    "(last - arrival) / max(1, tokens - 1)",
                ),
                ("Requests of one token count here, too", "tokens in seen]\n\n", "tokens in seen if tokens > 1]\n\n"),
                ("The latency is not divided by the tokens", "(last - arrival) / tokens", "(last - arrival)"),
            ],
        ),
        Part("at start", "at start", "how many requests have come and not ended", variants=THERE),
        Part("at end", "at end", "how many requests have come and not ended", variants=THERE),
    ],
    mistakes=[
        mistake(
            "All requests count: those before the window found an empty server, those behind it an emptying queue",
            WINDOW,
            "requests",
        ),
        mistake(
            "The window goes by arrival. By the end, those that wait longest are left out: they end later",
            WINDOW,
            "[each for each in requests if start <= each[0] and each[2] < end] or requests",
        ),
        mistake(
            "That is the mean wait. A mean hides the unlucky: take the wait of rank ceil(0.99 n) of n, sorted",
            P99,
            "sum(waits) / len(waits)",
        ),
        mistake(
            "n tokens have n - 1 gaps between them",
            "(last - first) / (tokens - 1) for",
            "(last - first) / tokens for",
        ),
        mistake(
            "A request of one token has no gap, and is not a gap of 0",
            "if tokens > 1]",
            "if tokens > 1] + [0.0 for *_, tokens in seen if tokens == 1]",
        ),
        mistake(
            "The latency per token is from arrival, the queue included",
            "(last - arrival) / tokens for arrival, _,",
            "(last - first) / tokens for _, first,",
        ),
        mistake(
            "Who came before the window and has not ended is there, too: count among all requests",
            "for arrival, _, last, _ in requests)",
            "for arrival, _, last, _ in seen)",
        ),
        mistake(
            "A request that runs is there until its last token, not until its first",
            "arrival <= time < last for arrival, _, last, _",
            "arrival <= time < first for arrival, first, _, _",
        ),
    ],
    hints=[
        "Which requests count? Those that come at ``start`` or later, and before ``end``, whenever they end.",
        "p99: sort the n waits. The place, counted from 1, is 99 n / 100, rounded up.",
        "A request is there at a time if it has come by then and its last token has not: arrival <= time < last.",
    ],
    why="A server is in a steady state if as many requests end as come: what is there at the end of the window is "
    "about what was there at its start. If it grows, each latency in the report depends on when the test stopped.",
)
def read_load_log(requests, start, end):
    """Read the log of a benchmark of a server: latencies in a window of time, and whether the queue grows.

    ``requests`` is a list, in any order, of (arrival, first, last, tokens): when a request came, when its first and its
    last token were there, in seconds, and how many tokens its answer has, at least 1.

    Latencies are of the requests that come in the window: at ``start`` or later, and before ``end``. At least one of
    them has two tokens. Return {"p99": ..., "TPOT": ..., "per token": ..., "at start": ..., "at end": ...}: the least
    time to first token that 99 of 100 requests do not exceed; the mean over requests of two tokens or more of the time
    from one token to the next; the mean over requests of the time from arrival to last token, divided by its tokens;
    and how many of all requests are there at ``start`` and at ``end``: have come by then, and get their last token
    later.
    """
    # ? which requests count?
    # ? their waits, gaps, latencies; and who is there
    seen = [each for each in requests if start <= each[0] < end]
    waits = sorted(first - arrival for arrival, first, _, _ in seen)
    gaps = [(last - first) / (tokens - 1) for _, first, last, tokens in seen if tokens > 1]
    latencies = [(last - arrival) / tokens for arrival, _, last, tokens in seen]

    def there(time):
        return sum(arrival <= time < last for arrival, _, last, _ in requests)

    return {
        "p99": waits[-(-99 * len(waits) // 100) - 1],
        "TPOT": sum(gaps) / len(gaps),
        "per token": sum(latencies) / len(latencies),
        "at start": there(start),
        "at end": there(end),
    }
