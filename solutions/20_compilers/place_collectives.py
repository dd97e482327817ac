"""The collectives that cut weights ask for, in a chain of matmuls."""

from random import Random

from tinydist.lab.author import Own, Values, alone, exercise, mistake

from .chapter import INSTEAD, SOLVED


def case(about, cuts, widths, ranks=4, tokens=8, itemsize=4):
    return alone(lambda: (tokens, list(widths), list(cuts), ranks, itemsize), about)


def drawn(seed, layers=5):
    random = Random(seed)
    cuts = [random.choice(["rows", "columns", "whole"]) for _ in range(layers)]
    widths = [random.choice([64, 128, 192]) for _ in range(layers + 1)]
    return case(f"{', '.join(cuts)}, drawn with seed {seed}", cuts, widths, random.choice([2, 4, 8]), itemsize=2)


def test_cases():
    yield case("a weight that is whole", ["whole"], [64, 128])
    yield case("one weight by rows", ["rows"], [64, 128])
    yield case("one weight by columns", ["columns"], [64, 128])
    yield case("columns, then rows", ["columns", "rows"], [64, 128, 64])
    yield case("columns, then columns", ["columns", "columns"], [64, 128, 64])
    yield case("rows, then rows", ["rows", "rows"], [64, 128, 64])
    yield case("columns, then rows, in 2 bytes", ["columns", "rows"], [64, 128, 64], itemsize=2)
    yield case("one rank", ["columns", "rows", "rows"], [64, 128, 64, 32], 1)
    for seed in range(6):
        yield drawn(seed)


@exercise(
    title="Place the collectives",
    minutes=20,
    difficulty=3,
    test_cases=test_cases,
    targets=[
        Own("your own rules", INSTEAD, SOLVED),
        Values("the bytes of each collective; 1 to 5 matmuls on 1 to 8 ranks"),
    ],
    mistakes=[
        mistake("An all-reduce sends twice what a reduce-scatter sends", "2 * part", "part"),
        mistake(
            "If the next weight is cut by rows, each rank needs a part of the sum: a reduce-scatter will do",
            'part if needed == "cut" else ',
            "",
        ),
        mistake(
            "A weight by columns takes the whole activation: what is cut must be gathered",
            'state == "cut" and needed == "whole"',
            'state == "cut" and cut == "whole"',
        ),
        mistake("At the end each rank has the whole result", '[*cuts, "whole"]', '[*cuts, "rows"]'),
        mistake("On a ring each rank sends (p-1)/p of the tensor", "(ranks - 1) * nbytes // ranks", "nbytes"),
        mistake(
            "A whole activation before a weight by rows costs nothing: each rank takes its part",
            'elif state == "cut" and needed == "whole"',
            "elif state != needed",
        ),
        mistake(
            "It is the activation that is sent, of as many numbers as it has: tokens times its width",
            "widths[place]",
            "widths[0]",
        ),
    ],
    hints=[
        "Before each matmul the activation is whole, cut along its width, or a summand on each rank. Which of these "
        "does a weight by columns need, and one by rows?",
        "columns: whole -> cut. rows: cut -> summands. A whole weight: whole -> whole.",
        "From summands to whole is an all-reduce, to cut a reduce-scatter; from cut to whole an all-gather; from whole "
        "to cut nothing is sent.",
    ],
    why="Columns, then rows needs one all-reduce for two matmuls: Megatron's MLP. Where the inner width is the larger "
    "one, as in any MLP, every other way to cut both weights sends more.",
)
def place_collectives(tokens, widths, cuts, ranks, itemsize):
    """Return the bytes that a rank sends for each activation, a list as long as ``widths``.

    ``widths`` are those of the activations [tokens, width], from the input to the result; between two of them is a
    matmul with a weight [width, next width], "whole", or cut along "rows" or "columns" (``cuts``), and a nonlinear
    operator. The input is whole on each of the ``ranks``, and the result must be, too. A sum over ranks is
    taken at once, where it arises, and as cheaply as the next weight allows; what no weight needs whole is not
    gathered. Numbers take ``itemsize`` bytes; collectives are rings: a reduce-scatter or all-gather of n bytes sends
    (p-1)/p n. All sizes divide.
    """
    sent, state = [], "whole"
    for place, cut in enumerate([*cuts, "whole"]):
        # ? What does the next weight need?
        needed = "cut" if cut == "rows" else "whole"
        nbytes = tokens * widths[place] * itemsize
        part = (ranks - 1) * nbytes // ranks
        # ? What does it take to get there?
        if state == "summands":
            sent.append(part if needed == "cut" else 2 * part)
        elif state == "cut" and needed == "whole":
            sent.append(part)
        else:
            sent.append(0)
        state = {"rows": "summands", "columns": "cut", "whole": "whole"}[cut]
    return sent
