"""What a planner's errors are, and which of its controls explains them without spoiling the order."""

from itertools import combinations

from tinydist.lab.author import Varied, alone, exercise, mistake

from .chapter import BY_HAND

# BLOOM's eleven trials of 181B on 384 A100s (bigscience@9e64edec, chronicles-prequel.md), and what the planner makes of
# them: without two options of the program, with each, and with rings through all cards, seconds.
TRIALS = [114.11, 117.07, 128.82, 111.89, 110.48, 117.11, 111.71, 112.50, 119.53, 122.75, 130.60]
PREDICTED = {
    "as it is": [101.8, 107.6, 107.0, 108.9, 104.2, 105.6, 101.4, 113.8, 121.8, 124.7, 118.7],
    "launches that wait": [103.3, 109.1, 109.9, 109.7, 105.7, 106.4, 102.9, 114.6, 123.3, 125.5, 121.7],
    "gradients reduced": [102.2, 108.1, 107.5, 109.4, 104.7, 106.0, 101.8, 114.3, 122.3, 125.3, 119.2],
    "rings through all cards": [101.8, 107.6, 107.0, 105.8, 101.0, 99.4, 95.3, 103.6, 116.1, 119.0, 117.1],
}
AS_IT_IS = "as it is"
CASES = {
    "three steps": ([10.0, 20.0, 30.0], {AS_IT_IS: [8.0, 18.0, 33.0], "slower": [9.2, 19.5, 33.0]}),
    "a change that mends the seconds, and spoils the order": (
        [10.0, 10.5, 20.0],
        {AS_IT_IS: [7.0, 7.5, 14.0], "first": [10.6, 10.4, 20.0], "second": [8.0, 8.5, 16.0]},
    ),
    "changes that are all worse": ([4.0, 5.0], {AS_IT_IS: [4.1, 5.2], "a": [3.0, 4.0], "b": [5.0, 6.0]}),
    "two steps that took equally long": (
        [6.0, 6.0, 9.0],
        {AS_IT_IS: [5.0, 5.2, 7.0], "a": [6.3, 6.0, 9.0], "b": [5.0, 5.5, 8.0]},
    ),
    "errors that cancel": (
        [10.0, 10.5, 11.0, 12.0],
        {AS_IT_IS: [9.0, 9.5, 10.2, 11.0], "cancels": [9.3, 9.8, 11.7, 12.8], "helps": [9.5, 10.0, 10.5, 11.5]},
    ),
    "a smaller worst error, and a smaller mean": (
        [10.0, 20.0, 30.0, 40.0],
        {
            AS_IT_IS: [8.0, 16.0, 24.0, 32.0],
            "all alike": [9.0, 18.0, 27.0, 36.0],
            "all but one": [10.0, 20.0, 30.0, 34.0],
        },
    ),
    "predictions that are equal": (
        [10.0, 12.0, 11.0],
        {AS_IT_IS: [8.5, 9.0, 9.2], "same": [10.9, 10.9, 10.9], "apart": [9.0, 9.5, 9.6]},
    ),
    "a single step": ([3.0], {AS_IT_IS: [2.0], "longer": [2.5], "too long": [6.0]}),
    "BLOOM's trials": (TRIALS, PREDICTED),
}


def test_cases():
    for about, (published, predicted) in CASES.items():
        yield alone(lambda p=published, q=predicted: (list(p), {name: list(each) for name, each in q.items()}), about)


@exercise(
    title="Which cause?",
    minutes=20,
    difficulty=3,
    test_cases=test_cases,
    targets=[
        BY_HAND,
        Varied(
            "mean, bias, worst and order of each prediction, and the cause, for made-up steps and BLOOM's trials",
            variants=[
                (
                    "Each pair counts once, and not from both sides",
                    "order += seconds",
                    "order += 2 * (seconds",
                    "seconds[shorter]\n",
                    "seconds[shorter])\n",
                ),
                (
                    "A bias has signs: errors up and down cancel in it",
                    "sum(errors) / len(errors)",
                    "sum(map(abs, errors)) / len(errors)",
                ),
                ("A cause may leave the order as it is: it is no less then", '>= before["order"]', '> before["order"]'),
                (
                    "The signs are turned round: an error is above 0 where the prediction is too long",
                    "found / true - 1",
                    "1 - found / true",
                ),
                ("Errors are parts of the published time, and not seconds", "found / true - 1", "found - true"),
                ("Errors are parts, and not percents", "found / true - 1", "100 * (found / true - 1)"),
                ("The worst error keeps its sign", "max(errors, key=abs)", "max(map(abs, errors))"),
                ("The worst error is the largest in size, and not the lowest", "max(errors, key=abs)", "min(errors)"),
                (
                    "These are the pairs in the wrong order",
                    "seconds[longer] > seconds[shorter]",
                    "seconds[longer] < seconds[shorter]",
                ),
                (
                    "Only neighbors in the list are compared: an order is one of all pairs",
                    "other in combinations(range(len(published)), 2)",
                    "other in zip(range(len(published)), range(1, len(published)))",
                ),
                (
                    "Order is the number of pairs, and not their part",
                    '"order": order}',
                    '"order": order / max(1, len(published) * (len(published) - 1) / 2)}',
                ),
                (
                    "Of the changes that are able the one with the least mean is the cause, and not the first",
                    'min(able, key=lambda name: scores[name]["mean"], default="as it is")',
                    '(able or ["as it is"])[0]',
                ),
                (
                    "The mean of squares weighs large errors more: the mean of sizes is asked for",
                    "sum(map(abs, errors)) / len(errors)",
                    "(sum(e * e for e in errors) / len(errors)) ** 0.5",
                ),
            ],
        ),
    ],
    mistakes=[
        mistake(
            "An error is a part of what was published: predicted / published - 1",
            "found / true - 1",
            "1 - true / found",
        ),
        mistake(
            "The mean error has no signs: else errors up and down cancel, as in the bias",
            "sum(map(abs, errors))",
            "sum(errors)",
        ),
        mistake("The worst error is the largest in size, and keeps its sign", "max(errors, key=abs)", "max(errors)"),
        mistake(
            "Two steps that took equally long have no order: leave such pairs out",
            "if published[one] != published[other]",
            "if True",
        ),
        mistake(
            "This change lowers the mean error, but fewer pairs are in the right order than before: it may be right "
            "for a wrong reason",
            'score["order"] >= before["order"]',
            "True",
        ),
        mistake(
            "A small bias is not a small error: of the changes that are left take the one with the least mean",
            'scores[name]["mean"], default',
            'abs(scores[name]["bias"]), default',
        ),
        mistake(
            "Of the changes that are left this one has the smallest worst error: the least mean is asked for",
            'scores[name]["mean"], default',
            'abs(scores[name]["worst"]), default',
        ),
        mistake(
            "Two predictions that are equal are in no order: the step that took longer needs the longer one",
            "seconds[longer] > seconds[shorter]",
            "seconds[longer] >= seconds[shorter]",
        ),
    ],
    hints=[
        "Make a function, or a loop, that scores one list of predictions: errors first, and mean, bias and worst from "
        "them.",
        "For the order look at all pairs of steps: does the one that took longer also have the longer prediction? "
        "itertools.combinations makes the pairs.",
        'A change is able if its mean is lower than that of "as it is", and its order no less. Of those that are, '
        'take the one with the least mean; of none, "as it is".',
    ],
    why="A constant that is moved until the mean error is small explains nothing: two errors may cancel. A control run "
    "asks for more: the error must fall, and what was right before must stay right. BLOOM's run of 105 s passed the "
    "first of the two and failed the second.",
)
def cause_of_error(published, predicted):
    """Score predictions of steps, each list with one thing changed in the planner, and name the likeliest cause.

    ``published`` are the seconds of the steps as they were measured. ``predicted`` has a list of seconds for the same
    steps under each name; one of them is "as it is", the others are changes. All are floats.

    Return {"scores": {name: {"mean": ..., "bias": ..., "worst": ..., "order": ...}}, "cause": ...}, with scores for all
    names. An error is a part of the published seconds, below 0 where the prediction is too fast. "mean" is the mean of
    their sizes, "bias" the mean with signs, "worst" the largest in size, with its sign, "order" how many pairs of steps
    are in the right order: the one that took longer has the longer prediction. Pairs that took equally long do not
    count. "cause" is the change with the least mean, of those with a lower mean than "as it is" and at least as many
    pairs in the right order; "as it is" if there is none.
    """
    scores = {}
    for name, seconds in predicted.items():
        # ? The errors, and what follows from them
        errors = [found / true - 1 for true, found in zip(published, seconds)]
        mean, bias = sum(map(abs, errors)) / len(errors), sum(errors) / len(errors)
        order = 0
        for one, other in combinations(range(len(published)), 2):
            if published[one] != published[other]:
                longer, shorter = (one, other) if published[one] > published[other] else (other, one)
                order += seconds[longer] > seconds[shorter]
        scores[name] = {"mean": mean, "bias": bias, "worst": max(errors, key=abs), "order": order}
    # ? Which changes are able to be the cause, and which is best?
    before, able = scores["as it is"], []
    for name, score in scores.items():
        if score["mean"] < before["mean"] and score["order"] >= before["order"]:
            able.append(name)
    return {"scores": scores, "cause": min(able, key=lambda name: scores[name]["mean"], default="as it is")}
