"""A function that breaks the graph in three places, rewritten as one graph."""

import contextlib
import io
import traceback
from itertools import pairwise

import torch
from torch.fx import GraphModule

from tinydist.compilers import capture
from tinydist.lab.author import Own, Target, Values, Wrong, alone, exercise, mistake

from .chapter import INSTEAD, SOLVED


class OneGraph(Target):
    """It is recorded on tensors without data, and prints nothing meanwhile."""

    name = "one graph"

    def shown(self, trial):
        """What hinders, in words; and what torch says of it, in which two reasons differ."""
        return hindrance(trial)[:2]

    def judge(self, exercise, trial, right):
        words, _, line = hindrance(trial)
        if words:
            raise Wrong(f"not one graph: {words}{line and f'. The line is `{line}`'}")


def hindrance(trial):
    """In words; what torch says; the line of the answer. All empty if there is none."""
    printed = io.StringIO()
    try:
        with contextlib.redirect_stdout(printed):
            graph = capture(trial.program, *trial.case.arguments(0))
    except Exception as error:
        cause = error.__cause__ or error
        frames = traceback.extract_tb(cause.__traceback__)
        called = [after.line for frame, after in pairwise(frames) if frame.name == "call"]
        words, torchs = (str(each).strip().partition("\n")[0] for each in (error, cause))
        return words, torchs.partition(" (")[0], "".join(called[-1:])
    if printed.getvalue():
        return "a print runs while the graph is made, and never again", "", ""
    result = GraphModule({}, graph)(*trial.case.arguments(0))
    same = torch.allclose(result, trial.returned[0], equal_nan=True)
    return ("" if same else "the graph gives other numbers than the function"), "", ""


def case(about, tokens, width, length, limit, padding=0.0, size=1.0, dtype=torch.float32):
    def arguments():
        x = size * torch.randn(tokens, width, generator=torch.Generator().manual_seed(tokens), dtype=dtype)
        x[length:] = padding
        return x, torch.tensor(length), torch.tensor(limit, dtype=dtype)

    return alone(arguments, f"[{tokens}, {width}], {length} of them tokens, limit {limit}: {about}")


def test_cases():
    yield case("no padding, nothing to clip", 4, 3, 4, 100.0)
    yield case("padding of zeros", 8, 4, 5, 100.0)
    yield case("a norm that is too large", 8, 4, 5, 0.01)
    yield case("padding that is not zero", 9, 4, 3, 100.0, padding=7.0)
    yield case("padding of nan", 9, 4, 3, 0.01, padding=float("nan"))
    yield case("padding of inf, in float64", 16, 2, 1, 0.5, padding=float("inf"), size=10.0, dtype=torch.float64)
    yield case("a mean of zeros", 6, 5, 2, 0.5, size=0.0)


@exercise(
    title="Make one graph of it",
    minutes=15,
    difficulty=2,
    test_cases=test_cases,
    targets=[
        Own("your own function", INSTEAD, SOLVED),
        Values("the clipped mean of the tokens; up to 16 of them, padded with anything"),
        OneGraph("capture makes one graph of it: no data are asked for, and nothing is printed"),
    ],
    mistakes=[
        mistake(
            "int(length), or a slice up to it, takes a number out of a tensor, and a shape depends on it. Keep the "
            "shape, and choose rows by comparing torch.arange(len(x)) with length",
            (
                "kept = torch.arange(len(x)) < length  # [T]",
                "mean = torch.where(kept[:, None], x, 0.0).sum(0) / length  # [D]",
            ),
            "mean = x[: int(length)].mean(0)  # [D]",
            given=True,
        ),
        mistake(
            "A Python `if` asks for data. Compute both, and choose by torch.where",
            "return mean * torch.where(norm > limit, limit / norm, 1.0)",
            "if norm > limit:\n        mean = mean * (limit / norm)\n    return mean",
            given=True,
        ),
        mistake(
            "A print is no operator: return what should be seen, or print outside of the graph. Here, leave it out",
            "norm = mean.norm()",
            'norm = mean.norm()\n    print("norm", norm)',
            given=True,
        ),
        mistake(
            "Padding may be nan or inf, and 0 times that is nan: choose by torch.where",
            "torch.where(kept[:, None], x, 0.0)",
            "(kept[:, None] * x)",
        ),
        mistake("The mean is over the tokens, of which there are `length`", "/ length", "/ len(x)"),
        mistake("The tokens are rows 0 to length - 1", "< length", "<= length"),
        mistake(
            "Only a norm above the limit is scaled down; all others stay as they are",
            "torch.where(norm > limit, limit / norm, 1.0)",
            "(limit / norm)",
        ),
    ],
    hints=[
        "Three lines need more than shapes. Which ask for data, and which one does more than compute?",
        "A graph's shapes may not depend on data: keep all rows, and make those that do not count zero.",
        "Compute the factor of both branches, limit / norm and 1, and choose with torch.where.",
    ],
    why="`torch.nn.utils.clip_grad_norm_` multiplies by a factor that is clamped to 1, with no `if`: it asks for no "
    "data, so the CPU need not wait for the GPU, and no graph breaks there.",
)
def mended_graph(x, length, limit):
    """Rewrite this function so that `tinydist.compilers.capture` makes one graph of it: three lines break the graph.

    It returns the mean [D] of the first ``length`` rows of ``x`` [T, D], scaled down to the norm ``limit`` if its
    norm is larger. The other rows are padding, which may be anything, nan and inf too. ``length`` and ``limit`` are
    tensors of one number. Keep the values. `capture` takes no operators that write in place, no `torch.tensor`, and no
    `torch.cond`.
    """
    kept = torch.arange(len(x)) < length  # [T]
    mean = torch.where(kept[:, None], x, 0.0).sum(0) / length  # [D]
    norm = mean.norm()
    return mean * torch.where(norm > limit, limit / norm, 1.0)
