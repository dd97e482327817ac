"""Published scores of attention variants, each beside the multi-head model that the same authors trained.

    change of a score = score - that of multi-head attention, in points        SCORES["MLA, 16B"].changes["C-Eval"]

Within a pair, the models differ in attention (and in layers or heads, where the sizes were matched). Each was trained
once. ``cache`` is the share of the multi-head model's cache that is left: MLA's as published, T5 XXL with 64 heads, the
dense 7B as if it had 32, as DeepSeek 7B has (its paper does not say).

Sources, read in transcriptions: DeepSeek-AI 2024, DeepSeek-V2, arXiv 2405.04434, tables 8 and 9; Ainslie et al. 2023,
GQA, arXiv 2305.13245, table 1; Gemma Team 2024, Gemma 2, arXiv 2408.00118, table 8.
"""

from dataclasses import dataclass

TESTS = ("BBH", "MMLU", "C-Eval", "CMMLU")


@dataclass(frozen=True)
class PublishedScores:
    cache: float  # share of multi-head attention's
    scores: dict  # test -> points
    multi_head: dict

    @property
    def changes(self):
        """test -> points more than multi-head attention."""
        return {test: round(score - self.multi_head[test], 1) for test, score in self.scores.items()}

    @property
    def mean(self):
        return sum(self.changes.values()) / len(self.changes)

    @property
    def worst(self):
        """(test, points)"""
        return min(self.changes.items(), key=lambda change: change[1])

    @property
    def best(self):
        """(test, points)"""
        return max(self.changes.items(), key=lambda change: change[1])


def _deepseek(cache, scores, multi_head):
    return PublishedScores(cache, dict(zip(TESTS, scores)), dict(zip(TESTS, multi_head)))


DENSE_7B = (37.0, 45.2, 42.9, 43.5)
T5, GEMMA = "mean of 7 tasks", "mean of 4 tests"
SCORES = {
    "T5 XXL, 8 KV heads": PublishedScores(8 / 64, {T5: 47.1}, {T5: 47.2}),
    "T5 XXL, multi-query": PublishedScores(1 / 64, {T5: 46.6}, {T5: 47.2}),
    "7B, 8 KV heads": _deepseek(8 / 32, (35.6, 41.2, 37.7, 38.4), DENSE_7B),
    "7B, multi-query": _deepseek(1 / 32, (33.2, 37.9, 30.0, 34.6), DENSE_7B),
    "Gemma 2 9B, half of the heads": PublishedScores(1 / 2, {GEMMA: 50.8}, {GEMMA: 50.3}),
    "MLA, 16B": _deepseek(15.6 / 110.6, (39.0, 50.0, 50.9, 53.4), (37.9, 48.7, 51.6, 52.3)),
    "MLA, 250B": _deepseek(34.6 / 860.2, (50.7, 59.0, 59.2, 62.5), (46.6, 57.5, 57.9, 60.7)),
}
