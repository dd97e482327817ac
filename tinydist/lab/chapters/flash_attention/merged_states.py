"""Attention over two sets of keys, each finished, made attention over the keys of both."""

from functools import partial, reduce
from math import inf

import torch

from ...alone import Calls, copied, input_of
from ...errors import Wrong
from ...exercise import exercise
from ...own_work import Watched
from ...ranks import about
from ...verdict import Property
from .compare import right, tensors, untouched_arguments
from .own_work import own_work
from .states import NAMES, hidden, mistaken, scores_of, state, values_of

ROWS, WIDTH = 5, 3
ALL = slice(None)


def case(about, *scores):
    """The first two are merged by the answer."""
    parts = [(each, values_of(each.shape[1], WIDTH, seed)) for seed, each in enumerate(scores)]
    whole = state(torch.cat([each for each, _ in parts], 1), torch.cat([values for _, values in parts]))
    return input_of(partial(copied, tuple(state(*each) for each in parts)), about, whole)


def cases():
    a, b = scores_of(ROWS, 4, 0), scores_of(ROWS, 6, 1)
    yield case("two pairs, over 4 and 6 keys", a, b)
    yield case("two pairs, lse of a near 300, of b near 298", a + 300, b + 298)
    yield case("two pairs, lse near -300", a - 300, b - 299)
    yield case("two pairs, of which a saw nothing in rows 1 and 2", hidden(a, slice(1, 3)), b)
    yield case("two pairs, of which b saw nothing", a, hidden(b, ALL))
    yield case("two pairs, of which neither saw anything in row 3", hidden(a, slice(2, 4)), hidden(b, slice(3, 5)))


def orders():
    """Five parts, of which the third saw nothing."""
    scores = [scores_of(ROWS, 2, seed, spread=4.0) for seed in range(10, 15)]
    scores[2] = hidden(scores[2], ALL)
    yield case("five pairs, merged from the left, from the right, and by pairs", *scores)


def properties(answer):
    watched = Watched(answer, torchs="attention")
    calls, folded = Calls(watched, cases()), Calls(in_all_orders(answer), orders())
    yield Property("own work", "neither the library's nor torch's", calls.together(own_work(watched)))
    yield Property("runs", "out [T, e] and lse [T] come back; a and b stay as they are", lambda: came_back(calls))
    yield Property("values", "attention over the keys of both", calls.each(merged, about("over 4")))
    yield Property("large", "scores of 300 and of -300", calls.each(merged, about("near")))
    yield Property("nothing", "a pair that saw no key changes nothing", calls.each(merged, about("saw")))
    yield Property("any order", "five pairs, from the left, from the right, by pairs", lambda: in_any_order(folded))


def came_back(calls):
    calls.end()
    calls.each(form)()


def form(trial):
    tensors(trial, NAMES, [each.shape for each in trial.case.expected])
    untouched_arguments(trial, "ab")


def merged(trial):
    a, b = trial.case.arguments(0)
    wrong = mistaken(a, b)
    for place, name in enumerate(NAMES):
        got, expected = trial.returned[0][place], trial.case.expected[place]
        strange = (~got.isfinite() & (got != expected)).nonzero()
        if len(strange):
            row, *rest = strange[0].tolist()
            raise Wrong(f"{name} is {got[row, *rest].item():g} in row {row}. {cause(a[1][row], b[1][row])}")
        right(name, got, expected, lambda name=name: wrong[name], unknown(got, expected, a[1], b[1]))


def unknown(got, expected, a, b):
    """Of finite numbers."""
    if expected.isinf().any() and got.isfinite().all():
        return "where neither saw a key, lse stays -inf: that finite number is for exp alone"
    lowest = torch.maximum(a, b).min().item()
    if -inf < lowest < -80:
        return f"here lse is {lowest:.4g}: {UNDERFLOW}"
    return f"Here lse is {lowest:.4g}: {OVERFLOW}" if lowest > 80 else ""


OVERFLOW = "exp of more than 88 is inf in float32. Take exp only of differences that are never above 0"
UNDERFLOW = "exp of less than -104 is 0 in float32. Subtract the common number itself, wherever it is not -inf"


def cause(a, b):
    a, b = a.item(), b.item()
    there = f"There lse of a is {a:.4g}, that of b {b:.4g}"
    if a == b == -inf:
        return f"{there}: -inf - -inf is NaN. What do you subtract instead, so that exp gives 0?"
    if -inf in (a, b):
        return f"{there}: exp(-inf) is 0, but -inf - -inf is NaN, 1 / 0 is inf, and 0 * inf is NaN"
    if max(a, b) < 0:
        return f"{there}: {UNDERFLOW}"
    return f"{there}: {OVERFLOW}"


def in_all_orders(answer):
    def fold(*parts):
        left = reduce(answer, parts)
        reverse = reduce(lambda later, earlier: answer(earlier, later), reversed(parts))
        pairs = answer(answer(answer(parts[0], parts[1]), answer(parts[2], parts[3])), parts[4])
        return {"from the left": left, "from the right": reverse, "by pairs": pairs}

    return fold


def in_any_order(folded):
    folded.end()
    folded.each(all_alike)()


def all_alike(trial):
    for how, result in trial.returned[0].items():
        for name, got, expected in zip(NAMES, result, trial.case.expected):
            right(f"{name} {how}", got, expected, unknown="What does the result depend on, but for a and b?")


@exercise(
    chapter="10_flash_attention",
    title="Merge two finished attentions",
    minutes=15,
    difficulty=2,
    targets={
        "values": "attention over all keys together; also where scores are 300 or -300",
        "nothing": "a row that saw no key, lse -inf, changes nothing; two of them stay (0, -inf), without NaN",
        "any order": "5 pairs give the same from the left, from the right and by pairs; a and b stay as they are",
    },
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
    check=properties,
)
def merge_states(a, b):
    """Merge attention over some keys with attention over other keys, to attention over all of them.

    a and b are pairs (out [T, e], lse [T]) of the same T queries: the output, which is finished, as softmax gives it,
    and the log-sum-exp of the scores. Return such a pair. A query that saw no key has zeros and -inf.
    """
    (a_out, a_lse), (b_out, b_lse) = a, b
    # The log-sum-exp over the keys of both?
    # By what is each output scaled? And where no key was seen?
    # The output of both?
    raise NotImplementedError
