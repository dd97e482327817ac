"""A test that tells wrong all-reduces from right ones."""

import torch
import torch.distributed as dist

from tinydist.lab.author import Case, Ended, Malformed, Target, Wrong, exercise, mistake

from .all_reduces import ALL, RIGHT


def test_cases():
    for ranks in (2, 3, 4, 1):
        for name in RIGHT:
            yield case(ranks, name)
    for ranks, name in [
        (3, "averages"),
        (4, "keeps rank 0's"),
        (4, "only rank 0 has the sum"),
        (3, "only neighbors"),
        (4, "leaves out the last part"),
        (4, "leaves out the rest"),
        (3, "returns the sum"),
        (4, "multiplies its own"),
        (3, "takes the maximum"),
        (2, "adds in 16 bits"),
        (4, "right for even values"),
        (3, "mixes up parts"),
        (2, "fills its buffer once"),
    ]:
        yield case(ranks, name)


def case(ranks, name):
    return Case(ranks, lambda rank: (ALL[name],), f"an all-reduce that {ABOUT[name]}", facts=name)


ABOUT = {
    "torch's": "is torch's",
    "in another order": "adds in the order of a ring",
    "averages": "averages",
    "keeps rank 0's": "broadcasts rank 0's numbers",
    "only rank 0 has the sum": "reduces to rank 0",
    "only neighbors": "adds the neighbors' numbers only",
    "leaves out the rest": "leaves out the last numbers where the length is not divisible by the ranks",
    "returns the sum": "returns the sum, and leaves the tensor as it was",
    "multiplies its own": "multiplies a rank's own numbers by the number of ranks",
    "takes the maximum": "takes the maximum",
    "adds in 16 bits": "adds in bfloat16",
    "right for even values": "truncates to integers",
    "mixes up parts": "puts right sums in another part's place",
    "leaves out the last part": "leaves out the last rank's part of the numbers",
    "fills its buffer once": "adds the first 64 numbers, which its buffer holds, and no others",
}


def program(answer, all_reduce):
    """A test that fails on one rank has failed, wherever the others are."""
    try:
        answer(all_reduce)
    except AssertionError as failed:
        raise Ended("fails") from failed
    return "passes"


MISSED = {  # by which numbers, or comparisons, each is missed
    "adds in 16 bits": "Small whole numbers are exact in 16 bits, and a tolerance of 1 % or more hides what rounding "
    "does: take numbers with more digits, and a small tolerance",
    "right for even values": "Truncation leaves whole numbers as they are: take others",
    "mixes up parts": "A part looks like another if its numbers are the same along the tensor, or if only sums over "
    "the tensor are compared: take unlike numbers, and compare each with its own",
    "fills its buffer once": "Tensors of up to 64 numbers fit into its buffer, and so do the first 64 of longer ones: "
    "take longer ones, and look at all of their numbers",
}


class Verdict(Target):
    name, decides = "verdict", True

    def judge(self, exercise, trial, right):
        mine, its = trial.returned[0], right.returned[0]
        if mine not in ("fails", "passes"):
            raise Malformed(f"it came to {mine!r}")
        if mine == "fails" and its == "passes":
            raise Wrong("this all-reduce is right, and the test fails")
        if mine == "passes" and its == "fails":
            raise Wrong("this all-reduce is wrong, and the test passes")

    def seen(self, trial):
        return None if trial.error else trial.returned[0]

    def trust(self, exercise, trial, mistake, how, earlier):
        """A wrong test is known by all that it lets pass."""
        alike = [self.seen(trial.there(case)) == self.seen(exercise.run(case, mistake)) for case in exercise.cases]
        return (2 if all(alike) else int(sum(alike) > len(alike) / 2)), (sum(alike),)

    def general(self, trial, right):
        return MISSED.get(trial.case.facts, "") if trial.returned[0] == "passes" else ""


VALUES = "torch.arange(size, dtype=torch.float32) * 0.37 + 10 * rank + 0.1"
CLOSE = "assert torch.allclose(tensor, whole)"


@exercise(
    title="A test that catches wrong sums",
    minutes=20,
    difficulty=2,
    test_cases=test_cases,
    program=program,
    check_communication=False,
    targets=[
        Verdict("it fails for 13 wrong all-reduces, each on 2, 3 or 4 ranks, and passes for two right ones on 1 to 4"),
    ],
    mistakes=[
        mistake(
            "All ranks have the same numbers: an all-reduce that multiplies a rank's own passes",
            VALUES,
            "torch.arange(size, dtype=torch.float32) * 0.37 + 0.1",
        ),
        mistake(
            "Sums in another order differ in their last bits, and this asks for equal ones: compare with a tolerance",
            CLOSE,
            "assert torch.equal(tensor, whole)",
        ),
        mistake(
            "The length is divisible by the ranks: what is left out of other lengths is not seen",
            "size = 40 * ranks + 3",
            "size = 40 * ranks",
        ),
        mistake(
            "Rank 0 alone looks. A sum that has arrived there need not have arrived anywhere else",
            "    " + CLOSE,
            "    if rank == 0:\n        " + CLOSE,
        ),
        mistake(
            "The tensor itself is never looked at: an all-reduce works in place, and what it returns need not be it",
            "    all_reduce(tensor)\n",
            "    returned = all_reduce(tensor)\n    tensor = tensor if returned is None else returned\n",
        ),
        mistake(
            "The tolerance is so wide that sums in 16 bits pass",
            CLOSE,
            "assert torch.allclose(tensor, whole, rtol=0.05)",
        ),
        mistake(
            "The numbers are integers, which truncation leaves as they are",
            VALUES,
            "torch.arange(size, dtype=torch.float32) + 1000.0 * rank",
        ),
        mistake(
            "Tensors are short, or not all of their numbers are looked at: what is wrong far behind is not seen",
            CLOSE,
            "assert torch.allclose(tensor[0], whole[0])",
        ),
    ],
    hints=[
        "Which numbers would make a wrong all-reduce look right? Zeros, numbers that are the same on all ranks, "
        "integers, a single one, a few.",
        "What the sum has to be can be computed on each rank alone: all ranks' numbers follow from a formula.",
        "An all-reduce changes the tensor in place, on all ranks, and adds in an order of its own.",
    ],
    why="This is a test for the pytest plugin: give it the fixtures rank and world_size, write "
    "@pytest.mark.ranks(2, 3, 4) "
    "above it, and it runs in milliseconds on each of these. Most wrong collectives are right for two ranks, or for "
    "equal "
    "numbers.",
)
def catches_wrong_sums(all_reduce):
    """Write a test: raise AssertionError if ``all_reduce(tensor)`` is wrong, and pass if it is right.

    ``all_reduce`` should add a float32 tensor of any length over all ranks in place, as ``dist.all_reduce`` does,
    in whatever order. This function runs on each rank, and it is enough if it raises on one of them. It is called on
    1 to 4 ranks, with right and with wrong ones.
    """
    rank, ranks = dist.get_rank(), dist.get_world_size()
    # ? Which numbers, what is expected, and what is compared?
    size = 40 * ranks + 3

    def numbers(rank):
        return torch.arange(size, dtype=torch.float32) * 0.37 + 10 * rank + 0.1

    tensor = numbers(rank)
    all_reduce(tensor)
    whole = sum(numbers(other) for other in range(ranks))
    assert torch.allclose(tensor, whole)
    # .
