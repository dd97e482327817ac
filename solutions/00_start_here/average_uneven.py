"""Gradients of uneven shares, averaged so that every sequence counts the same."""

import torch
import torch.distributed as dist

from tinydist.lab.author import Bytes, Collectives, Values, Wrong, also, exercise, many, mistake
from tinydist.lab.differences import close, times, unchanged, weighed

from .chapter import shares


def test_cases():
    yield shares(2, 1)
    yield shares(3, 3)
    yield shares(6, 6, 4)
    yield shares(4, 4, 4, 4, 0)
    yield shares(7, 1, 3, 2)
    yield shares(5)


def by_the_ranks(trial, got, want, own, pick):
    """Weighted by sequences, and divided by another count than theirs, in all cases the same one."""
    given = [trial.case.arguments(rank) for rank in range(trial.case.ranks)]
    sequences = [each for _, each in given]
    for count, whose in COUNTS.items():
        divided = count(sequences)
        if all(close(mine * divided, its * sum(sequences)) for mine, its in zip(got, want)) and all(
            divided_by(count, trial.there(case), pick) for case in test_cases()
        ):
            return (
                f"The gradients are weighted by their sequences, and divided by {divided}, {whose}. There are "
                f"{sum(sequences)} sequences: divide by these"
            )
    return None


COUNTS = {
    lambda sequences: sum(map(bool, sequences)): "as many as there are ranks that have sequences",
    len: "as many as there are ranks",
    max: "the largest share",
    lambda sequences: min(filter(None, sequences)): "the smallest share that is not empty",
}


def divided_by(count, trial, pick):
    """Does each rank have the weighted sum, divided by this?"""
    given = [trial.case.arguments(rank) for rank in range(trial.case.ranks)]
    whole = sum(gradient * each for gradient, each in given) / count([each for _, each in given])
    return trial.error is None and all(close(mine, whole) for mine in pick(trial))


class TwoCalls(Bytes):
    """As many bytes, and in two collectives at most: a third of one number would pass for a number of 8 bytes."""

    def judge(self, exercise, trial, right):
        super().judge(exercise, trial, right)
        for rank, calls in enumerate(Collectives("").seen(trial)):
            if len(calls) > 2:
                raise Wrong(
                    f"rank {rank} makes {many(len(calls), 'collective')}, where 2 are enough: one of the gradient, and "
                    "one of the number of sequences"
                )


@exercise(
    title="Average gradients of uneven shares",
    minutes=5,
    difficulty=1,
    test_cases=test_cases,
    targets=[
        Values(
            "on 1 to 5 ranks, all ranks hold the gradient of the whole batch, in the tensor itself",
            explain=[by_the_ranks, times, unchanged, weighed],
        ),
        TwoCalls(
            "one all-reduce of the gradient, and one of a number",
            together=True,
            room=1.15,  # the number may have 8 bytes
        ),
    ],
    mistakes=[
        mistake(
            "This is the mean of the means: a sequence of a short share counts more than one of a long share. "
            "Weight each gradient by its number of sequences before you sum",
            "gradient *= sequences / total",
            "gradient /= dist.get_world_size()",
        ),
        mistake(
            "The gradients are only added up. Weight each by its part of all sequences; how many there are in all, "
            "an all_reduce tells",
            "    gradient *= sequences / total\n",
            "",
        ),
        mistake(
            "The gradients are weighted by their sequences, and not divided by the number of all sequences",
            "sequences / total",
            "sequences",
        ),
        mistake(
            "The sum is divided by the number of all sequences, and its gradients are not weighted: each is a mean of "
            "its own sequences, and counts as often as there are of them",
            "gradient *= sequences / total",
            "gradient /= total",
        ),
        mistake(
            "The weights are right, and then the result is divided by the number of ranks as well: the weights sum "
            "to 1 already",
            "dist.all_reduce(gradient)",
            "dist.all_reduce(gradient)\n    gradient /= dist.get_world_size()",
        ),
        mistake(
            "Each rank has weighted its own gradient, and nobody has summed them",
            "\n    dist.all_reduce(gradient)",
            "",
        ),
        mistake(
            "The sum is right, in a new tensor, and gradient has not changed: `gradient = ...` only gives the name to "
            "another tensor. Write into it, with *= or copy_",
            "gradient *= sequences / total",
            "gradient = gradient * (sequences / total)",
        ),
        mistake(
            "A rank that has no sequences stays away, and the others wait for it: it has to call the collectives, too",
            "    total = torch.tensor(float(sequences))\n",
            "    if not sequences:\n        return\n    total = torch.tensor(float(sequences))\n",
        ),
    ],
    alternatives=[
        also("torch.tensor(float(sequences))", "torch.tensor(sequences)"),
        also(  # in one message
            "    total = torch.tensor(float(sequences))\n    dist.all_reduce(total)\n"
            "    gradient *= sequences / total\n    dist.all_reduce(gradient)",
            "    both = torch.cat([gradient * sequences, torch.tensor([float(sequences)])])\n"
            "    dist.all_reduce(both)\n"
            "    gradient.copy_(both[:-1] / both[-1])",
        ),
    ],
    hints=[
        "In the mean over all sequences, each sequence counts 1 / (number of all sequences). How much does the "
        "gradient of a rank with 6 of 16 sequences count?",
        "It counts 6/16. A rank knows its own 6. The 16 is a sum over all ranks: who sums over ranks?",
        "Two all_reduces: one of the number of sequences, as a tensor of one number, and then one of the weighted "
        "gradient. (all_gather_object pickles the number, and sends more bytes.)",
    ],
    why="The last batch of an epoch is seldom even, and in language models every share has another number of "
    "tokens. The same mistake is made on one rank, where the gradients of several micro-batches are accumulated: "
    "torchtune averaged their means, although they had unequal numbers of tokens, until its pull request 1875.",
)
def average_uneven(gradient, sequences):
    """Turn ``gradient``, in place, into the gradient of the whole batch.

    On each rank it is the mean gradient over the rank's own sequences, of which there
    are ``sequences``, a whole number. Ranks have different numbers of sequences, and a
    rank may have none: then its gradient is zero.
    """
    # ? How much does this rank's gradient count?
    total = torch.tensor(float(sequences))
    dist.all_reduce(total)
    gradient *= sequences / total
    dist.all_reduce(gradient)
