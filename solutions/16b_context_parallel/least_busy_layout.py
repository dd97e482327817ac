"""Which layout balances a ring where documents are kept apart."""

from tinydist.lab.author import Own, Values, alone, exercise, mistake

from .chapter import BY_HAND, FORMULAS

WORK = "range(1, length + 1)"


def case(about, documents, ranks):
    return alone(lambda: (list(documents), ranks), about)


def test_cases():
    yield case("one document of 16 tokens, 4 ranks", [16], 4)
    yield case("one document of 96 tokens, 8 ranks", [96], 8)
    yield case("a document for each rank", [8, 8, 8, 8], 4)
    yield case("a long document and many short ones", [40] + [2] * 12, 4)
    yield case("short ones, and then a long one", [2] * 12 + [40], 4)
    yield case("documents in the middle of chunks", [5, 11, 3, 21, 8], 3)
    yield case("two long ones, at both ends", [30, 2, 2, 2, 2, 2, 2, 30], 6)
    yield case("a long one in the middle", [6, 6, 24, 6, 6], 4)
    yield case("four documents, 4 ranks", [12, 3, 8, 9], 4)
    yield case("three documents, 4 ranks", [4, 9, 3], 4)
    yield case("two layouts that are as good", [5, 3, 2, 1, 1, 1, 1, 1, 1], 4)
    yield case("one rank", [3, 5, 2], 1)
    yield case("one document, one rank", [6], 1)


@exercise(
    title="Balance a ring of documents",
    minutes=20,
    difficulty=3,
    test_cases=test_cases,
    targets=[
        Own("your own arithmetic", BY_HAND, FORMULAS),
        Values("pairs of the busiest rank in three layouts, and the best of these; of 1 to 20 documents"),
    ],
    mistakes=[
        mistake(
            "A token sees those before it in its own document, and not all before it in the sequence",
            "for length in documents:",
            "for length in [sum(documents)]:",
        ),
        mistake("A token sees itself, too: the first one of a document has one pair", WORK, "range(length)"),
        mistake(
            "Stripes deal out tokens from the first rank to the last each time, and not there and back",
            "work[rank::ranks]",
            "work[rank :: 2 * ranks] + work[2 * ranks - 1 - rank :: 2 * ranks]",
        ),
        mistake(
            "All wait for the busiest rank: its pairs count, not the mean",
            "max(map(sum, parts))",
            "sum(map(sum, parts)) // ranks",
        ),
        mistake(
            "Zig-zag gives a rank an early chunk and a late one: r and 2p - 1 - r",
            "2 * ranks - 1 - rank",
            "ranks + rank",
        ),
        mistake(
            "Stripes deal out single tokens in turn: rank, rank + p, and so on",
            "work[rank::ranks]",
            "work[rank::2 * ranks]",
        ),
        mistake("The best layout is the one whose busiest rank has the fewest pairs", "min(busiest", "max(busiest"),
        mistake(
            "Of layouts that are as good as one another the first in the order of the task is the best: contiguous, "
            "zig-zag, striped. This is the first by the alphabet",
            "min(busiest",
            "min(sorted(busiest)",
        ),
    ],
    hints=[
        "Write down for each token of the sequence how many keys it sees. What ranks have are sums of these numbers.",
        "Within a document of n tokens they are 1, 2, ..., n, and then it begins again with 1.",
        "Deal the list out in the three ways, sum each rank's part, and take the largest sum of each way.",
    ],
    why="Zig-zag is exact for one document. Where many are packed into one sequence and kept apart, its chunks have "
    "unlike costs, and stripes or even contiguous parts can be better. So PyTorch has load balancers per document and "
    "by cost besides, and Llama 3 gathers keys, which takes any mask.",
)
def least_busy_layout(documents, ranks):
    """Of a packed sequence, how many pairs of a query and a key the busiest rank has, in three layouts.

    ``documents``: their lengths, in tokens, one after another in the sequence. A token sees itself and the tokens
    before it in its own document. 2 ``ranks`` divide the number of all tokens. The layouts: "contiguous": equal parts;
    "zig-zag": chunks r and 2p - 1 - r of 2p equal chunks; "striped": token i is on rank i mod p.

    Return {"contiguous": ..., "zig-zag": ..., "striped": ..., "best": ...}: pairs of the busiest rank, and the layout
    that has the fewest of these; of several, the first in this order.
    """
    # ? How many keys does each token see?
    work = []
    for length in documents:
        work += range(1, length + 1)
    # ? Deal them out, and find the busiest rank of each layout.
    chunk = len(work) // (2 * ranks)
    chunks = [work[i * chunk : (i + 1) * chunk] for i in range(2 * ranks)]
    layouts = {"contiguous": [], "zig-zag": [], "striped": []}
    for rank in range(ranks):
        layouts["contiguous"].append(chunks[2 * rank] + chunks[2 * rank + 1])
        layouts["zig-zag"].append(chunks[rank] + chunks[2 * ranks - 1 - rank])
        layouts["striped"].append(work[rank::ranks])
    busiest = {name: max(map(sum, parts)) for name, parts in layouts.items()}
    return busiest | {"best": min(busiest, key=busiest.get)}
