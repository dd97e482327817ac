"""Two states of an online softmax, over different keys, made the state over the keys of both."""

from functools import partial, reduce

import torch

from ...alone import Calls, copied, input_of
from ...errors import Wrong
from ...exercise import exercise
from ...own_work import Watched
from ...verdict import Property
from .compare import alike, right, tensors
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
    yield case("two states, 4 and 6 keys", a, b)
    yield case("two states, the maxima of a near 300, those of b near 290", a + 300, b + 290)
    yield case("two states, maxima near -300", a - 300, b - 297)
    yield case("two states, of which a saw nothing in rows 1 and 2", hidden(a, slice(1, 3)), b)
    yield case("two states, of which b saw nothing", a, hidden(b, ALL))
    yield case("two states, of which neither saw anything in row 3", hidden(a, slice(2, 4)), hidden(b, slice(3, 5)))


def orders():
    """Five parts, of which the third saw nothing."""
    scores = [scores_of(ROWS, 2, seed, spread=4.0) for seed in range(10, 15)]
    scores[2] = hidden(scores[2], ALL)
    yield case("five states, merged from the left, from the right, and by pairs", *scores)


def properties(answer):
    watched = Watched(answer, torchs="attention")
    calls, folded = Calls(watched, cases()), Calls(in_all_orders(answer), orders())
    yield Property("runs", "three tensors come back, of the shapes of a's", lambda: came_back(calls))
    yield Property("own work", "neither the library's nor torch's", calls.together(own_work(watched)))
    yield Property("values", "the state over the keys of both", calls.each(merged, about("two states, 4")))
    yield Property("large", "scores of 300 and of -300", calls.each(merged, about("near")))
    yield Property("nothing", "a state that saw no key changes nothing", calls.each(merged, about("saw")))
    yield Property("any order", "and the states that were merged stay as they are", lambda: in_any_order(folded))


def about(words):
    return lambda case: words in case.about


def came_back(calls):
    calls.end()
    calls.each(lambda trial: tensors(trial, NAMES, [each.shape for each in trial.case.expected]))()


def merged(trial):
    a, b = trial.case.arguments(0)
    wrong = mistaken(a, b)
    for place, name in enumerate(NAMES):
        got, expected = trial.returned[0][place], trial.case.expected[place]
        strange = ~got.isfinite() & expected.isfinite()
        if strange.any():
            row, column = strange.nonzero()[0].tolist()
            raise Wrong(f"{name} is {got[row, column].item():g} in row {row}. {cause(a[0][row], b[0][row])}")
        right(name, got, expected, lambda name=name: wrong[name])


def cause(a, b):
    a, b = a.item(), b.item()
    maxima = f"There the maximum of a is {a:.4g}, that of b {b:.4g}"
    if a == b == -float("inf"):
        return f"{maxima}: -inf - -inf is NaN. What do you subtract instead, so that exp gives 0?"
    if -float("inf") in (a, b):
        return (
            f"{maxima}. Subtract the larger of both: exp(-inf) is 0. The other way round it is inf, and inf times a "
            "total of 0 is NaN"
        )
    return f"{maxima}. exp of more than 88 is inf in float32: exp only of differences that are never above 0"


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
    for place, (before, after) in enumerate(zip(trial.case.arguments(0), trial.arguments[0])):
        for name, old, new in zip(NAMES, before, after):
            if not alike(old, new):
                raise Wrong(
                    f"{name} of state {place} has changed: a state may be merged again, in another order. Make new "
                    "tensors, without *=, += and out="
                )
    for how, result in trial.returned[0].items():
        for name, got, expected in zip(NAMES, result, trial.case.expected):
            right(f"{name} {how}", got, expected, unknown="What does the result depend on, but for a and b?")


@exercise(
    chapter="10_flash_attention",
    title="Merge two halves of a softmax",
    minutes=15,
    difficulty=2,
    targets={
        "values": "the state that all keys together have; also where scores are 300 or -300",
        "nothing": "a row that saw no key, maximum -inf, changes nothing; two of them stay (-inf, 0, 0), without NaN",
        "any order": "5 states give the same from the left, from the right and by pairs; a and b stay as they are",
    },
    hints=[
        "total of a counts in units of exp(maximum of a). In which unit can both be added, and how do you change from "
        "one to the other?",
        "The common maximum is the larger one. exp(a's maximum - the common one) is at most 1, and brings total and "
        "output of a to the new unit; the same for b.",
        "Where neither saw anything, the common maximum is -inf, and -inf - -inf is NaN. Subtract a finite number "
        "there instead: -inf minus any finite number is -inf, and exp of that is 0.",
        "The number to subtract: common.clamp(min=torch.finfo(common.dtype).min). The maximum that you return stays "
        "-inf.",
    ],
    why="This sum is all that flash attention adds to a loop over tiles, and it is exact: nothing is approximated. The "
    "same merge joins keys that lie on different GPUs, in ring attention and in split decoding.",
    check=properties,
)
def merge_states(a, b):
    """Merge two states of an online softmax, over different keys, to the state over the keys of both.

    A state is (maximum [T, 1], total [T, 1], output [T, e]) of T queries: the largest score; the sum of
    exp(score - maximum); the sum of exp(score - maximum) times the key's value, not divided yet. A query that saw
    no key has -inf, 0, 0.
    """
    (a_maximum, *_), (b_maximum, *_) = a, b
    maximum = torch.maximum(a_maximum, b_maximum)
    # By what is each state scaled, so that both count from the common maximum? And where that is -inf?
    # The total and the output of both?
    raise NotImplementedError
