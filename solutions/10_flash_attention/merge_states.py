"""Attention over two sets of keys, each finished, made attention over the keys of both."""

import math
from functools import reduce

import torch

from tinydist.lab.author import Own, Values, alone, exercise, mistake
from tinydist.lab.differences import close

from .chapter import BY_HAND, SOLVED

NAMES = ("out", "lse")
ALL = slice(None)


def parts(about, keys, *, rows=5, width=3, near=(), hidden=(), spoiled=False, dtype=torch.float32, spread=2.0):
    """Pairs (out, lse) over so many keys each. ``near``: added to the scores of each; ``hidden``: (part, rows that see
    nothing of it); ``spoiled``: a number of the first output is NaN. Rows differ in which part has the larger
    maximum."""
    generator, pairs = torch.Generator().manual_seed(0), []
    for place, count in enumerate(keys):
        scores = spread * torch.randn(rows, count, generator=generator, dtype=dtype) + (near[place] if near else 0)
        for part, unseen in hidden:
            scores[unseen if part == place else slice(0)] = -torch.inf
        values = torch.randn(count, width, generator=generator, dtype=dtype)
        pairs.append((scores.softmax(1).nan_to_num() @ values, scores.logsumexp(1)))
    if spoiled:
        pairs[0][0][1, 0] = math.nan
    return alone(lambda: tuple((out.clone(), lse.clone()) for out, lse in pairs), about)


def test_cases():
    yield parts("two pairs, over 4 and 6 keys", (4, 6))
    yield parts("two pairs, of many queries", (4, 6), rows=40)
    yield parts("two pairs, lse of a near 300, of b near 298 (exp of more than 88 is inf)", (4, 6), near=(300, 298))
    yield parts(
        "two pairs, lse near -300 (exp of less than -104 is 0: subtract the common number itself)",
        (4, 6),
        near=(-300, -299),
    )
    yield parts(
        "two pairs, in float64, lse near 10^6 (in float32, such numbers are 0.06 apart)",
        (3, 1),
        rows=2,
        width=4,
        near=(1e6, 1e6),
        dtype=torch.float64,
    )
    yield parts("two pairs, of which a saw nothing in rows 1 and 2", (4, 6), hidden=[(0, slice(1, 3))])
    yield parts("two pairs, of which b saw nothing", (4, 6), hidden=[(1, ALL)])
    yield parts(
        "two pairs, of which neither saw anything in row 3", (4, 6), hidden=[(0, slice(2, 4)), (1, slice(3, 5))]
    )
    yield parts(
        "two pairs, NaN in row 1 of a's output: who hides it, hides that the model has diverged", (4, 6), spoiled=True
    )
    yield parts("five pairs, of which the third saw nothing", (2,) * 5, hidden=[(2, ALL)], spread=4.0)


def in_all_orders(answer, *parts):
    """Of two, as they are."""
    if len(parts) == 2:
        return answer(*parts)
    a, b, c, d, e = parts
    orders = {
        "from the left": reduce(answer, parts),
        "from the right": reduce(lambda later, earlier: answer(earlier, later), reversed(parts)),
        "by pairs": answer(answer(answer(a, b), answer(c, d)), e),
    }
    return {f"{name} {how}": each for how, pair in orders.items() for name, each in zip(NAMES, pair, strict=True)}


class Merged(Values):
    """Of so many pairs."""

    def __init__(self, name, pairs, holds, **how):
        super().__init__(holds, NAMES, **how)
        self.name, self.pairs = name, pairs

    def concerns(self, trial, exercise):
        return super().concerns(trial, exercise) and len(trial.arguments[0]) == self.pairs


def another_formula(trial, got, want, own, pick):
    """That gives the same. It is looked for in two pairs, in all of what came back."""
    (a_out, a_lse), (b_out, b_lse) = trial.case.arguments(0)
    out, lse = trial.returned[0]
    natural, of_2 = torch.logaddexp(a_lse, b_lse), torch.logaddexp2(a_lse, b_lse)

    def mean(of_a, of_b=None):
        return of_a[:, None] * a_out + (1 - of_a if of_b is None else of_b)[:, None] * b_out

    right = (a_lse - natural.clamp(min=torch.finfo(natural.dtype).min)).exp()
    powers_of_2 = [mean((a_lse - of_2).exp2()), mean((a_lse - natural).exp2(), (b_lse - natural).exp2())]
    outputs = {
        "The weights are swapped: each output is scaled by the other one's part of the total": [mean(1 - right)],
        "This is a's output alone": [a_out],
        "This is b's output alone": [b_out],
        "In each row this is the output with the larger lse alone. The other one counts, too: scale both by exp(its "
        "lse - the common one), and add them": [mean((a_lse >= b_lse).to(a_lse))],
        BASE_2: powers_of_2,
        "The outputs are weighed by lse itself: by exp(its lse - the common one)": [
            mean(a_lse / (a_lse + b_lse), b_lse / (a_lse + b_lse))
        ],
        "The outputs are added as they are: scale each by exp(its lse - the common one)": [a_out + b_out],
    }
    if not close(out, mean(right)):
        return next((words for words, found in outputs.items() if any(close(out, each) for each in found)), None)
    if any(close(lse, each) for each in (of_2, natural / math.log(2))):
        return BASE_2
    if close(lse, a_lse + b_lse):
        return "The two lse are added. Their exps are what adds up: the log of the sum of both"
    return None


BASE_2 = "There are powers of 2, or logarithms to base 2, in it. lse is a natural logarithm here: take exp and log"
PARTS = "(a_lse - finite).exp(), (b_lse - finite).exp()"


@exercise(
    title="Merge two finished attentions",
    minutes=15,
    difficulty=2,
    test_cases=test_cases,
    program=in_all_orders,
    targets=[
        Own("neither the library's nor torch's attention", BY_HAND, SOLVED, torchs="attention"),
        Merged(
            "values",
            2,
            "attention over all keys together; also where scores are 300 or -300, and in float64. A row that saw no "
            "key, lse -inf, changes nothing; two of them stay (0, -inf), without NaN; NaN in an output comes out "
            "again; a and b stay as they are",
            explain=[another_formula],
        ),
        Merged("any order", 5, "5 pairs give the same from the left, from the right and by pairs"),
    ],
    mistakes=[
        mistake(
            "This is the sum of both outputs, as they are: each was divided by its own total. Scale them by their "
            "parts of the common one first, exp(its lse - the common one)",
            PARTS,
            "torch.ones_like(lse), torch.ones_like(lse)",
        ),
        mistake(
            "This is the mean of both outputs, as if both had seen as much: weigh them by exp(its "
            "lse - the common one)",
            PARTS,
            "torch.ones_like(lse) / 2, torch.ones_like(lse) / 2",
        ),
        mistake(
            "Each output is scaled by exp(its lse), from which the common one was not subtracted",
            PARTS,
            "a_lse.exp(), b_lse.exp()",
        ),
        mistake(
            "This is the larger lse: exp of both are sums that add up", "out, lse", "out, torch.maximum(a_lse, b_lse)"
        ),
        mistake(
            "The outputs are scaled by exp(its lse - the larger lse), and such parts do not add up to 1: divide by "
            "their sum, or subtract the common lse",
            PARTS,
            "(a_lse - torch.maximum(a_lse, b_lse).clamp(min=-1e30)).exp(), "
            "(b_lse - torch.maximum(a_lse, b_lse).clamp(min=-1e30)).exp()",
        ),
        mistake(
            "The larger lse was subtracted before exp, and is not added again",
            "out, lse",
            "out, lse - torch.maximum(a_lse, b_lse)",
        ),
        mistake(
            "Where neither saw a key, the common lse is -inf, and -inf - -inf is NaN. What do you subtract instead, so "
            "that exp gives 0?",
            "lse.clamp(min=torch.finfo(lse.dtype).min)",
            "lse",
        ),
        mistake(
            "Where neither saw a key, lse stays -inf: that finite number is for exp alone", "out, lse", "out, finite"
        ),
    ],
    hints=[
        "exp(lse) is the total by which an output was divided. What is the total of both, and its logarithm? What "
        "part of it has a?",
        "The output of both is a mean of the two, weighed by exp(a's lse - the common lse) and "
        "exp(b's lse - the common lse), which add up to 1. These are [T]; the outputs are [T, e].",
        "exp(300) is inf: torch.logaddexp subtracts the larger one before it takes exp, and adds it again to the "
        "logarithm. It also knows that two times -inf give -inf.",
        "Where neither saw anything, the common lse is -inf, and -inf - -inf is NaN. Subtract "
        "lse.clamp(min=torch.finfo(lse.dtype).min) there: -inf minus any finite number is -inf, and exp of that is 0. "
        "The lse that you return stays -inf.",
    ],
    why="Ring attention and split decoding do this: each GPU, or each block of the cache, finishes attention over its "
    "own keys, and sends an output and one number a query. The merge is exact: nothing is approximated.",
)
def merge_states(a, b):
    """Merge attention over some keys with attention over other keys, to attention over all of them.

    a and b are pairs (out [T, e], lse [T]) of the same T queries: the output, which is finished, as softmax gives it,
    and the log-sum-exp of the scores. Return such a pair. A query that saw no key has zeros and -inf.
    """
    (a_out, a_lse), (b_out, b_lse) = a, b
    # ? The log-sum-exp over the keys of both?
    # ? By what is each output scaled? And where no key was seen?
    # ? The output of both?
    lse = torch.logaddexp(a_lse, b_lse)
    finite = lse.clamp(min=torch.finfo(lse.dtype).min)  # -inf - -inf would be NaN
    of_a, of_b = (a_lse - finite).exp(), (b_lse - finite).exp()
    out = of_a[:, None] * a_out + of_b[:, None] * b_out
    return out, lse
