"""From how many tokens on are the experts of a layer compute-bound, if their weights have fewer bits?"""

import math

from tinydist.lab.author import Own, Values, alone, exercise, mistake

from .chapter import A100, BY_HAND, H100, SOLVED


def case(about, k, n, experts, chosen, peak, bandwidth, weight_bytes=2):
    said = (
        f"{about}: k={k}, n={n}, {experts} experts, {chosen} of them for each token, weights of {weight_bytes:g} bytes"
    )
    return alone(lambda: (k, n, experts, chosen, peak, bandwidth, weight_bytes), said)


def on(device, about, *sizes):
    return case(f"{about}, on an {device}", *sizes[:4], device.peak_of("bfloat16"), device.memory_bandwidth, *sizes[4:])


def test_cases():
    yield on(A100, "one expert, which all tokens meet", 6144, 2304, 1, 1)
    yield on(H100, "one expert with a square weight", 8192, 8192, 1, 1)
    yield on(A100, "one expert that is too narrow", 96, 2048, 1, 1)
    yield on(H100, "as many experts as Mixtral has", 4096, 14336, 8, 2)
    yield on(H100, "the same with weights of 4 bits", 4096, 14336, 8, 2, 0.5)
    yield on(H100, "as many experts as DeepSeek-V3 has", 7168, 2048, 256, 8, 1)
    yield on(A100, "experts that are too narrow", 96, 2048, 8, 2)
    yield case("a ridge of 128 FLOPs per byte", 512, 512, 4, 1, 128e12, 1e12)
    yield case("a ridge of 256 FLOPs per byte", 512, 512, 4, 1, 256e12, 1e12)
    yield case("all experts for each token", 64, 32, 4, 4, 1e13, 1e12, 4)


def ways():
    """What somebody may take otherwise."""
    return {
        "Rows and results have 2 bytes for each of their k + n numbers": of(row=lambda k, n, w: k + n),
        "The rows are read, too: k numbers of 2 bytes": of(row=lambda k, n, w: 2 * n),
        "Results have 2 bytes for each number, as rows have: weight_bytes is for weights": of(
            row=lambda k, n, w: 2 * k + w * n
        ),
        "Rows have 2 bytes for each number, as results have: weight_bytes is for weights": of(
            row=lambda k, n, w: w * k + 2 * n
        ),
        "Each row is read and written once": of(row=lambda k, n, w: 4 * (k + n)),
        "A row is read by each of the `chosen` experts of its token, and each reads it anew": of(read=lambda c: c),
        "Each of the `chosen` experts writes a result of its own: n numbers for each row": of(written=lambda c: c),
        "Each of the `chosen` experts reads its row and writes its result: a token makes `chosen` of each": of(
            read=lambda c: c, written=lambda c: c
        ),
        "Weights have weight_bytes, which need not be 2": of(weights=lambda w: 2),
        "The weights of an expert are read once, and not by each of its tokens' rows": of(
            tokens=lambda rows, e, c: rows * c * c
        ),
        "A token makes `chosen` rows: so many times fewer tokens than rows are needed": of(
            tokens=lambda rows, e, c: rows * c
        ),
        "A token makes `chosen` rows, and not one in each expert": of(tokens=lambda rows, e, c: rows / e),
        "m are the rows of all experts together": of(tokens=lambda rows, e, c: rows * e / c),
        "The rows of one expert are rounded up before they are made tokens: they need not be a whole number. Round up "
        "the tokens alone": of(tokens=lambda rows, e, c: math.ceil(rows / e) * e / c),
        "Take what is enough: round up, where it is no whole number": of(up=lambda tokens: math.floor(tokens) + 1),
        "Round up, and not to the nearest": of(up=round),
        "Return 0 where no number is enough": of(none=1),
        "Where no number is enough, return 0 as a number": of(none=-1),
    }


def of(
    row=lambda k, n, w: 2 * (k + n),
    tokens=lambda rows, e, c: rows / c,
    up=math.ceil,
    none=0,
    read=lambda c: 1,
    written=lambda c: 1,
    weights=lambda w: w,
):
    def way(k, n, experts, chosen, peak, bandwidth, weight_bytes):
        gain = 2 * k * n - peak / bandwidth * row(k / read(chosen), n / written(chosen), weight_bytes)
        if gain <= 0:
            return none
        return up(tokens(peak / bandwidth * experts * weights(weight_bytes) * k * n / gain, experts, chosen))

    return way


class Tokens(Values):
    def general(self, trial, right):
        k, n, _, chosen, *others = trial.case.arguments(0)
        if trial.returned[0] == tokens_needed(k, n, chosen, chosen, *others):
            return (
                "These are the rows of one expert, which would be tokens if it got a row of each: or do you read the "
                "weights of `chosen` experts alone? All are read, since some token needs each of them, and a token is "
                "a row of `chosen` of them"
            )
        return super().general(trial, right)


@exercise(
    title="How many tokens keep experts busy?",
    minutes=20,
    difficulty=2,
    test_cases=test_cases,
    targets=[
        Own("your own arithmetic", BY_HAND, SOLVED),
        Tokens(
            "the smallest whole number of tokens; 0 where none is enough. For 1 to 256 experts, weights of 0.5 to 4 "
            "bytes, on an A100, an H100 and GPUs that do not exist",
            ways=ways(),
        ),
    ],
    mistakes=[
        mistake(
            "All experts are read, since some token needs each of them: their weights count `experts` times",
            "experts * weight_bytes * k * n",
            "weight_bytes * k * n",
        ),
        mistake(
            "A token is computed by `chosen` experts: it makes that many rows, each with 2 k n FLOPs",
            "rows / chosen",
            "rows",
        ),
        mistake(
            "Each row is read, k numbers of 2 bytes, and n numbers of 2 bytes are written: not the weights alone are "
            "moved",
            "2 * k * n - ridge * 2 * (k + n)",
            "2 * k * n",
        ),
        mistake("The results are written, too: n numbers for each row", "2 * (k + n)", "2 * k"),
        mistake(
            "Only weights have weight_bytes. Rows have 2 bytes for each number",
            "ridge * 2 * (k + n)",
            "ridge * weight_bytes * (k + n)",
        ),
        mistake("A product has 2 m k n FLOPs: each multiplication comes with an addition", "2 * k * n -", "k * n -"),
        mistake("Round up: with a token less than needed it is still memory-bound", "math.ceil(", "math.floor("),
        mistake(
            "However many tokens there are, this product stays left of the ridge: the answer is 0. Its intensity "
            "comes "
            "to k n / (k + n) and no further",
            "gain <= 0",
            "gain == 0",
        ),
    ],
    hints=[
        "Write down FLOPs and bytes for m rows, which all experts get together. One token makes `chosen` rows.",
        "m rows take 2 m k n FLOPs. They move 2 m (k + n) bytes, and experts weight_bytes k n bytes of weights. "
        "You look for "
        "the smallest m for which the first divided by the second is peak / bandwidth or more.",
        "Bring all terms with m to one side: m (2 k n - ridge 2 (k + n)) is to be at least ridge experts "
        "weight_bytes k n. "
        "What if the bracket is 0 or negative? And how many tokens make m rows?",
    ],
    why="A mixture of experts needs many more tokens at once than a dense model, experts / chosen times as many, "
    "before its "
    "GPUs are busy. This is why servers of such models gather the tokens of hundreds of users, and why weights of "
    "4 bits help small batches and not large ones.",
)
def tokens_needed(k, n, experts, chosen, peak, bandwidth, weight_bytes):
    """From how many tokens on is a layer of experts compute-bound?

    Each of the ``experts`` has a k x n matrix, whose numbers have ``weight_bytes`` bytes. A token is sent to
    ``chosen`` of the experts, and makes a row of k numbers in each of them. The rows and the results have 2 bytes for
    each number. On average all experts get as many rows (so it need not be a whole number), and all of them are read
    from memory once; count the products of all experts as one.
    The GPU computes ``peak`` FLOP/s and moves ``bandwidth`` bytes/s.

    Return the smallest whole number of tokens for which arithmetic takes as long as memory, or longer. Return 0 if
    there is no such number. (A row that is read by two experts is read twice. Solve for the number: to try a million of
    them one after the other takes too long.)
    """
    ridge = peak / bandwidth
    # ? Which FLOPs and bytes do m rows have, when do they meet at the ridge, and how many tokens make m rows?
    gain = 2 * k * n - ridge * 2 * (k + n)
    if gain <= 0:
        return 0
    rows = ridge * experts * weight_bytes * k * n / gain
    return math.ceil(rows / chosen)
