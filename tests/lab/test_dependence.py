"""What a wrong number is told of the arguments, where nobody has listed the mistake."""

import sys

import pytest
import torch
from lab.mini import exercise

from tinydist.lab import dependence
from tinydist.lab.author import Values, Wrong, alone
from tinydist.lab.exercise import mistake
from tinydist.lab.judging import judge
from tinydist.syllabus.registry import of_name

EDITS = [
    ("flops_per_token", "It lacks: 3 `layers` `width` `sequence`", "2 * 2 * sequence / 2", "2 * sequence / 2"),
    ("flops_per_token", "It has too much: 6 `width` `vocabulary`", "2 * width * vocabulary", "4 * width * vocabulary"),
    ("flops_per_token", "It is 2/3 times what is right", "3 * forward, 3 * forward", "2 * forward, 2 * forward"),
    ("flops_per_token", "if `experts` were as large as `chosen`", "width * experts if", "width * chosen if"),
    ("tokens_to_hide", "It stays the same if `gradient_bytes` is changed", "nbytes = gradient_bytes", "nbytes = 2"),
    ("missing_seconds", "It has the wrong sign", "max(errors, key=abs)", "-max(errors, key=abs)"),
    ("tokens_to_hide", "if `latency` were 2 times as large", "buckets * latency", "buckets * latency * 2"),
    ("tokens_to_hide", "It is one less than is right", "math.ceil(seconds", "round(seconds"),
    ("fit_link", "times 2 (`ranks` - 1)/`ranks`", "steps = 2 * (ranks - 1)", "steps = ranks"),
    ("predict_traffic", "times `ranks`/(`ranks` - 1)", "others = p - 1", "others = p"),
    ("ring_latency", "Each link has a latency of its own", "flight[rank - 1])", "sum(flight) / len(flight))"),
    ("fewest_gpus", "not powers of two alone", "if batch % gpus:", "if batch % gpus or gpus & (gpus - 1):"),
    ("most_gpus", "`per_node` a little larger, or smaller, it is right", "t <= per_node", "t < per_node"),
    ("best_buckets", "neither waits for the other", "now += sum(", "now = max(now, end) + sum("),
]


@pytest.mark.parametrize("name, told, old, new", EDITS, ids=[f"{name}-{told[:30]}" for name, told, *_ in EDITS])
def test_what_is_told_of_the_arguments(name, told, old, new, monkeypatch):
    exercise = of_name(name)
    monkeypatch.setattr(exercise, "suspects", [])
    for target in exercise.targets:
        monkeypatch.setattr(target, "variants", [])
    assert told in str(judge(exercise.variant(mistake("", old, new)), exercise).wrong)


def test_a_number_chosen_from_a_table_has_no_ratio():
    exercise = of_name("read_benchmark")
    smallest = mistake(
        "", "half = min(", "half = min(seconds) and min(", "if speed >= best / 2", "if speed >= best / 3"
    )
    assert "times what is right" not in str(judge(exercise.variant(smallest), exercise).wrong)


def told(right, answer, *cases):
    """Of numbers that are right in one way, and computed in another."""
    values, cases = Values(""), [alone(lambda given=given: given, str(given)) for given in cases]
    made = exercise(right, cases, values)
    with pytest.raises(Wrong) as caught:
        values.compare(made, made.trial(answer, cases[0]))
    return str(caught.value)


def test_a_constant_is_wrong_only_if_it_is_so_in_all_cases():
    def tripled(x, things):
        return 3.0 * x

    def counted(x, things):
        return x * len(things)

    def right(x, things):
        return 1.0 * x

    cases = (2.5, [1.0] * 3), (3.5, [1.0] * 4)
    assert "It is 3 times what is right, whatever the arguments are" in told(right, tripled, *cases)
    assert "It is what is right times the number of things in `things`" in told(right, counted, *cases)


@pytest.mark.skipif(sys.platform != "linux", reason="memory is limited on Linux")
def test_an_argument_that_is_the_size_of_a_tensor_is_not_made_too_large(monkeypatch):
    monkeypatch.setattr(dependence, "BUDGET", 2**28)
    sizes = []

    def right(n, x):
        held = torch.zeros(n, dtype=torch.uint8)
        sizes.append(len(held))
        return x * len(held) + 0.5

    told(right, lambda n, x: x * len(torch.zeros(n, dtype=torch.uint8)), (2**26, 3.0))
    assert 2**27 <= max(sizes) < 2**29  # and not 64 times as much


def test_a_ratio_to_nothing_is_none():
    """Where the argument is four times smaller, 0 is right."""
    reason = told(lambda x: max(0.0, x - 3), lambda x: (x - 3) * (x + 1), (10.0,), (20.0,))
    assert "ZeroDivisionError" not in reason
