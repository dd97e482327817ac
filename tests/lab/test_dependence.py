"""What a wrong number is told of the arguments, where nobody has listed the mistake."""

import pytest

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
