"""Published scores: what the papers' tables say about them, and the worst rows."""

import pytest

from tinydist.attention.published_scores import SCORES


def test_the_worst_rows():
    worst = {name: each.worst for name, each in SCORES.items()}
    assert worst["7B, multi-query"] == ("C-Eval", -12.9)
    assert worst["7B, 8 KV heads"] == ("C-Eval", -5.2)
    assert worst["MLA, 16B"] == ("C-Eval", -0.7)
    assert worst["MLA, 250B"] == ("C-Eval", 1.3)
    assert worst["T5 XXL, 8 KV heads"] == ("CNN", -0.3)
    assert worst["T5 XXL, multi-query"] == ("CNN", -0.8)


def test_the_means_of_t5_are_about_those_that_its_table_prints():
    for name, mean in {"T5 XXL, 8 KV heads": 47.1, "T5 XXL, multi-query": 46.6}.items():
        scores = SCORES[name].scores.values()
        assert abs(sum(scores) / len(scores) - mean) < 0.2


def test_what_is_left_of_the_cache():
    """DeepSeek-V2, appendix D.2: 14 % for small MoE models, 4 % for large ones."""
    assert [round(100 * SCORES[name].cache) for name in ("MLA, 16B", "MLA, 250B")] == [14, 4]


@pytest.mark.parametrize("name", SCORES)
def test_a_mean_lies_between_the_worst_and_the_best(name):
    each = SCORES[name]
    assert each.worst[1] <= each.mean <= each.best[1] and 0 < each.cache < 1
    assert each.scores.keys() == each.multi_head.keys()
