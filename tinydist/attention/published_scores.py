"""Published scores of attention variants, each beside the multi-head model that the same authors trained.

    change of a score = score - that of multi-head attention, in points        SCORES["MLA, 16B"].changes["C-Eval"]

Within a pair, the models differ in attention (and in layers or heads, where the sizes were matched). Each was trained
once. ``cache`` is the share of the multi-head model's cache that is left: MLA's as published, T5 XXL with 64 heads
(google-research/t5x@2c294339 t5x/examples/t5/t5_1_1/xxl.gin, read), the dense 7B as if it had 32, as DeepSeek 7B has
(its paper does not say).

Sources, read in transcriptions (viktor-shcherb/msc_thesis@76c5ebcd, references/): DeepSeek-AI 2024, DeepSeek-V2, arXiv
2405.04434, tables 8 and 9; Ainslie et al. 2023, GQA, arXiv 2305.13245, table 1 (ROUGE-1, BLEU and F1; it prints
averages that are up to 0.2 below those of its tests); Gemma Team 2024, Gemma 2, arXiv 2408.00118, table 8 (which has
no more than the mean of four tests).
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


def _t5(cache, *scores):
    return PublishedScores(cache, dict(zip(T5_TESTS, scores)), dict(zip(T5_TESTS, T5_XXL)))


T5_TESTS = ("CNN", "arXiv", "PubMed", "MediaSum", "MultiNews", "WMT", "TriviaQA")
T5_XXL = (43.8, 45.6, 47.5, 36.4, 46.9, 28.4, 81.9)
DENSE_7B = (37.0, 45.2, 42.9, 43.5)
GEMMA = "mean of 4 tests"
SCORES = {
    "T5 XXL, 8 KV heads": _t5(8 / 64, 43.5, 45.4, 47.7, 36.3, 47.2, 28.4, 81.6),
    "T5 XXL, multi-query": _t5(1 / 64, 43.0, 45.0, 46.9, 36.1, 46.5, 28.5, 81.3),
    "7B, 8 KV heads": _deepseek(8 / 32, (35.6, 41.2, 37.7, 38.4), DENSE_7B),
    "7B, multi-query": _deepseek(1 / 32, (33.2, 37.9, 30.0, 34.6), DENSE_7B),
    "Gemma 2 9B, half of the heads": PublishedScores(1 / 2, {GEMMA: 50.8}, {GEMMA: 50.3}),
    "MLA, 16B": _deepseek(15.6 / 110.6, (39.0, 50.0, 50.9, 53.4), (37.9, 48.7, 51.6, 52.3)),
    "MLA, 250B": _deepseek(34.6 / 860.2, (50.7, 59.0, 59.2, 62.5), (46.6, 57.5, 57.9, 60.7)),
}
