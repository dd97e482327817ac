"""Which rows of a table of throughput cannot be, and which of their columns is wrong."""

from math import isclose
from random import Random
from typing import NamedTuple

from tinydist.lab.author import Malformed, Target, Wrong, alone, exercise, kind, mistake

from .chapter import BY_HAND, number, unchanged

A100, H100, SPARSE = 312e12, 989e12, 2
COLUMNS = ("tokens", "teraflops", "mfu", "seconds")


class Row(NamedTuple):
    name: str
    gpus: int
    peak: float
    batch: int
    flops: float
    tokens: float
    teraflops: float
    mfu: float
    seconds: float


def digits(number, count=4):
    return float(f"{number:.{count}g}")


def row(name, gpus, peak, batch, flops, took, **wrong):
    """As it would be published; ``wrong``: how many times too large a column is."""
    tokens = batch / took / gpus
    right = dict(tokens=tokens, teraflops=tokens * flops / 1e12, mfu=100 * tokens * flops / peak, seconds=took)
    columns = {column: digits(value * wrong.get(column, 1)) for column, value in right.items()}
    return Row(name, gpus, peak, batch, flops, **columns)


# GPUs, peak, batch, FLOPs of a token and seconds of a step, as published (mfu_of_run.py has the sources; the step of
# Llama 3.1 is not published: it is as long as 39 % MFU make it).
R22 = ("22B", 8, A100, 4 * 2048, 1.396e11, 1.10)
R175 = ("GPT-3 175B", 64, A100, 64 * 2048, 1.076e12, 13.75)
R530 = ("530B", 280, A100, 280 * 2048, 3.23e12, 37.83)
R1008 = ("1T", 512, A100, 512 * 2048, 6.128e12, 71.49)
BLOOM = ("BLOOM", 384, A100, 2048 * 2048, 1.082e12, 105.0)
LLAMA = ("LLaMA 65B", 2048, A100, 2**22, 4.062e11, 5.389)
H405 = ("Llama 3.1 405B", 16384, H100, 2**24, 2.625e12, 6.96)
SMALL = ("a small model", 1, 100e12, 65536, 7.5e8, 1.25)
FULL = 4 / 3  # forward, backward, and forward once more
TABLES = {
    "a table in which all agrees": [row(*R22), row(*R175), row(*R530), row(*R1008)],
    "HFU sold as MFU": [row(*R22), row(*R175, mfu=FULL), row(*SMALL)],
    "a batch that is counted twice": [row(*SMALL, tokens=2), row(*R22)],
    "what is computed again counts as work": [row(*BLOOM, teraflops=FULL), row(*R530)],
    "the time of half a batch": [row(*LLAMA), row(*BLOOM), row(*H405, seconds=0.5)],
    "a part in place of percent": [row(*R22, mfu=0.01), row(*R175)],
    "milliseconds": [row(*SMALL, seconds=1000)],
    "the peak of sparse matrices": [row(*H405, mfu=1 / SPARSE), row(*LLAMA)],
    "above the peak": [row(*LLAMA[:-1], 2.0), row(*R1008)],
    "a batch that is counted twice, from there on": [row(*R530[:-1], 18.0), row(*R22, mfu=1.1)],
    "bits for bytes": [row(*SMALL, teraflops=8), row(*R22, seconds=1 / 8), row(*H405)],
    "all of one node": [row(*R175, tokens=8), row(*R22), row(*BLOOM, tokens=0.5)],
    "a little": [row(*R22, tokens=1.06), row(*R175, teraflops=0.94), row(*R530, mfu=1.05), row(*R1008, seconds=0.95)],
    "3 %": [row(*R22, teraflops=1.03), row(*R175, seconds=0.97), row(*R530, tokens=0.97), row(*BLOOM, mfu=1.03)],
    "much, that is not above the peak": [
        row(*SMALL[:-1], 0.52),
        row(*SMALL[:-1], 0.52, teraflops=2)._replace(name="another"),
    ],
    "a wrong MFU above 100": [row(*R22, mfu=2.5), row(*R175)],
    "columns that were rounded, and are right": [
        row(*R22, tokens=1.012, mfu=0.995),
        row(*R530, seconds=1.015),
        row(*SMALL, teraflops=0.988),
    ],
    "no rows": [],
}


def drawn(seed):
    """Of three rows some are wrong in one column, by 4 % at least."""
    draw, rows = Random(seed), []
    for name in "ABC":
        gpus, peak, batch = draw.choice((1, 8, 48, 1024)), draw.choice((A100, H100)), draw.randint(1, 999) * 4096
        flops, part = draw.randint(1, 9999) * 1e8, draw.choice((0.2, 0.4, 0.45, 0.6, 1.2))
        column, by = draw.choice((*COLUMNS, "")) if part < 1 else "", draw.choice((0.5, 0.8, 0.96, 1.04, 1.25, 2, 3))
        rows.append(row(name, gpus, peak, batch, flops, batch * flops / (gpus * peak * part), **{column: by}))
    return f"rows that were drawn ({seed})", rows


def test_cases():
    for about, rows in [*TABLES.items(), *map(drawn, range(12))]:
        yield alone(lambda rows=rows: (list(rows),), about)


class Rows(Target):
    """Of what was returned, one thing after the other: names, columns, values."""

    decides = True

    def __init__(self, name, holds):
        super().__init__(holds)
        self.name = name

    def judge(self, exercise, trial, right):
        unchanged("table", trial)
        mine, its = trial.returned[0], right.returned[0]
        self.form(mine, trial.arguments[0][0])
        rows = {each.name: each for each in trial.arguments[0][0]}
        getattr(self, f"judge_{self.name}")(mine, its, rows)

    def form(self, mine, rows):
        if not isinstance(mine, dict):
            raise Malformed(f"it returned {kind(mine)}, where a dict is right: the name of a row -> (column, value)")
        for name, found in mine.items():
            if name not in {each.name for each in rows}:
                raise Malformed(f"it names row {name!r}, which the table has not")
            if not isinstance(found, tuple | list) or len(found) != 2 or found[0] not in (*COLUMNS, "all"):
                raise Malformed(
                    f"of row {name!r} it says {found!r}, where (column, value) is right: {', '.join(COLUMNS)}, all"
                )
            if found[0] != "all":
                number(f"the value of row {name!r}", found[1])

    def judge_rows(self, mine, its, rows):
        for name in [each for each in rows if (each in mine) != (each in its)]:
            if name in mine:
                raise Wrong(
                    f"row {name!r} is right, and yours says that its {mine[name][0]} cannot be: {shown(rows[name])}. "
                    f"{agreeing(rows[name])}"
                )
            raise Wrong(
                f"row {name!r} cannot be, and yours lets it pass: {shown(rows[name])}. {agreeing(rows[name])}"
                + ", and it claims more than the peak" * (its[name][0] == "all")
            )

    def judge_columns(self, mine, its, rows):
        for name, (column, _) in its.items():
            if mine[name][0] != column:
                why = ""
                if mine[name][0] == "all":
                    why = ". A row is (all, None) only if it agrees with itself: ask that before its MFU is compared"
                elif column == "all":
                    why = ". It agrees with itself, and claims more than the peak: nobody knows what is wrong"
                raise Wrong(
                    f"row {name!r} has something wrong, but not {mine[name][0]}: {shown(rows[name])}. "
                    f"{agreeing(rows[name])}{why}"
                )

    def judge_values(self, mine, its, rows):
        for name, (column, value) in its.items():
            if column == "all" and mine[name][1] is not None:
                raise Wrong(f"of row {name!r} nobody knows which of its numbers is right: the value is None")
            if column != "all" and not isclose(mine[name][1], value, rel_tol=0.01):
                told = f"{column} of row {name!r} should be {mine[name][1]:.4g}, you say, and that is not right"
                raise Wrong(f"{told}{self.why(column, mine[name][1], value, rows[name])}")

    def why(self, column, mine, right, row):
        if isclose(mine, getattr(row, column), rel_tol=1e-6):
            return ". This is the row's own number, which is wrong: compute it from the others"
        if row.gpus > 1 and isclose(mine, right * row.gpus, rel_tol=0.01):
            what = "so long one GPU alone would take" if column == "seconds" else "it is that of all GPUs together"
            return f": {what}, and there are {row.gpus:,}"
        return ""

    def seen(self, trial):
        return None if trial.error else trial.returned[0]

    def alike(self, mine, other, right):
        if mine.keys() != other.keys() or any(mine[name][0] != other[name][0] for name in mine):
            return 0
        pairs = [(mine[name][1], other[name][1]) for name in mine]
        if all(a == b or (None not in (a, b) and isclose(a, b, rel_tol=0.01)) for a, b in pairs):
            return 2
        return int(self.name != "values")


def shown(row):
    return (
        f"{row.tokens:g} tokens/s of a GPU, {row.teraflops:g} TFLOP/s, MFU {row.mfu:g} %, {row.seconds:g} seconds "
        f"a step of {row.batch:,} tokens. GPUs: {row.gpus}, each {row.peak / 1e12:g} TFLOP/s; {row.flops:.4g} FLOPs a "
        "token"
    )


def agreeing(row):
    """What of it agrees with what."""
    pairs = {
        "seconds and tokens": (row.seconds * row.tokens * row.gpus, row.batch),
        "tokens and TFLOP/s": (row.tokens * row.flops, row.teraflops * 1e12),
        "TFLOP/s and MFU": (row.teraflops * 1e12, row.mfu / 100 * row.peak),
    }
    off = {what: abs(left / right - 1) for what, (left, right) in pairs.items()}
    apart = [f"{what} are {100 * each:.3g} % apart" for what, each in off.items() if each > 0.02]
    agree = [what for what, each in off.items() if each <= 0.02]
    return "; ".join([*apart, *[f"{what} agree" for what in agree]])


SHARE = "row.teraflops * 1e12, row.mfu / 100 * row.peak"


@exercise(
    title="A table that cannot be",
    minutes=20,
    difficulty=3,
    test_cases=test_cases,
    targets=[
        BY_HAND,
        Rows("rows", "those that cannot be, and no others, in tables whose numbers are rounded"),
        Rows("columns", "the one column that is wrong, or all, where a row agrees with itself and is above the peak"),
        Rows("values", "what should stand there, within 1 %: tokens and TFLOP/s of a GPU, MFU in percent"),
    ],
    mistakes=[
        mistake(
            "Numbers are rounded, so two sides that are less than 2 % apart agree",
            "0.02 * right",
            "0.001 * right",
        ),
        mistake("mfu is in percent", SHARE, SHARE.replace("/ 100 ", "")),
        mistake(
            "Where TFLOP/s agree with neither tokens nor MFU, they are what is wrong, and not MFU",
            "elif not work:",
            "elif not work and share:",
        ),
        mistake(
            "This is a part: mfu is in percent",
            "100 * row.tokens * row.flops / row.peak",
            "row.tokens * row.flops / row.peak",
        ),
        mistake("These are FLOP/s: a TFLOP/s has 10^12", "row.tokens * row.flops / 1e12", "row.tokens * row.flops"),
        mistake(
            "This is the row's own number, which is wrong: compute it from the others",
            '"mfu", 100 * row.tokens * row.flops / row.peak',
            '"mfu", row.mfu',
        ),
        mistake("These tokens are those of all GPUs", "row.batch / row.seconds / row.gpus", "row.batch / row.seconds"),
    ],
    hints=[
        "Four columns, and three equations between neighbors: seconds and tokens, tokens and TFLOP/s, TFLOP/s and MFU. "
        "Compute both sides of each, and see which agree.",
        "seconds tokens gpus = batch; tokens flops = TFLOP/s; TFLOP/s = MFU peak. If one column is wrong, which "
        "equations fail? Make a table of it, for each of the four.",
        "The columns at the ends stand in one equation, those in between in two. So (fails, holds, holds) is seconds, "
        "(fails, fails, holds) tokens, and so on.",
        "Compute what should stand there from columns that agree. If all three hold, and MFU is above 100, it is all.",
    ],
    why="Tables of throughput are copied, converted and rounded, and one number in them is often that of another "
    "quantity: HFU for MFU, half a batch, the peak of sparse matrices. Three equations that must hold find which, "
    "without any run.",
)
def impossible_rows(table):
    """Find the rows of a table of throughput that cannot be, and what should stand there.

    Return a dict: the name of each row that cannot be -> (column, value). The column is the one that is wrong,
    "tokens", "teraflops", "mfu" or "seconds", and the value what should stand there, within 1 %: for example {"B":
    ("mfu", 43.7)}. All other rows are left out.

    A row has a ``name``; what is surely right: so many ``gpus``, the ``peak`` of one in FLOP/s, dense, the ``batch`` in
    tokens of a step, and ``flops``, those that the model needs for a token, forward and backward; and four columns, of
    which one may be wrong: ``tokens`` per second and GPU; ``teraflops``, TFLOP/s of the model on each GPU; ``mfu``, in
    percent; ``seconds`` of a step. They are rounded: what should be the same may be up to 2 % apart.

    A row may also agree with itself and claim more than the peak. Then nobody knows what is wrong: ("all", None).
    """

    def same(left, right):
        return abs(left - right) <= 0.02 * right

    found = {}
    for row in table:
        # ? Which equations must hold? Which of them do?
        time = same(row.seconds * row.tokens * row.gpus, row.batch)
        work = same(row.tokens * row.flops, row.teraflops * 1e12)
        share = same(row.teraflops * 1e12, row.mfu / 100 * row.peak)
        # ? What follows from that?
        if not time and not work:
            found[row.name] = "tokens", row.batch / row.seconds / row.gpus
        elif not work:
            found[row.name] = "teraflops", row.tokens * row.flops / 1e12
        elif not time:
            found[row.name] = "seconds", row.batch / row.tokens / row.gpus
        elif not share:
            found[row.name] = "mfu", 100 * row.tokens * row.flops / row.peak
        elif row.mfu > 100:
            found[row.name] = "all", None
    return found
