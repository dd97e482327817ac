"""A checkpoint of p ranks, read on q ranks: which numbers of which files."""

import torch

from tinydist.lab.author import Malformed, Own, Target, Values, Wrong, alone, exercise, mistake

from .chapter import SOLVED

CHECKPOINTS = [  # numbers in all, ranks that have written, ranks that read
    (12, 4, 3),
    (12, 3, 4),
    (10, 4, 3),
    (10, 3, 4),  # padding on both sides
    (7, 2, 5),  # a rank that has padding alone
    (9, 1, 4),
    (9, 4, 1),
    (16, 4, 4),
]


class File:
    """What one rank has written: float32 numbers. Notes what is read."""

    def __init__(self, numbers, number):
        self._numbers, self.number, self.reads = numbers, number, []

    def __len__(self):
        return len(self._numbers)

    def read(self, start, stop):
        if not (type(start) is int and type(stop) is int and 0 <= start < stop <= len(self)):
            raise Malformed(
                f"you read numbers {start!r} to {stop!r} of file {self.number}, which has 0 to {len(self)}: start must "
                "be an int below stop"
            )
        self.reads.append((start, stop))
        return self._numbers[start:stop].clone()


def files_of(total, writers):
    """No padding is written."""
    part = -(-total // writers)
    row = torch.arange(1.0, total + 1)
    return [File(row[rank * part : (rank + 1) * part], rank) for rank in range(writers)]


def test_cases():
    for total, writers, readers in CHECKPOINTS:
        for rank in sorted({0, readers // 2, readers - 1}):
            about = f"{total} numbers, written by {writers}, rank {rank} of {readers} reads"

            def arguments(total=total, writers=writers, rank=rank, readers=readers):
                return files_of(total, writers), total, rank, readers

            yield alone(arguments, about)


class Read(Target):
    """Every number that is this rank's, once, and no other."""

    name = "read"

    def seen(self, trial):
        if trial.error is not None:
            return None
        return sum(stop - start for file in trial.arguments[0][0] for start, stop in file.reads)

    def trust(self, exercise, trial, mistake, how, earlier):
        """As many numbers are soon read by chance: those of all cases are compared."""
        alike = [self.seen(trial.there(case)) == self.seen(exercise.run(case, mistake)) for case in exercise.cases]
        return (2 if all(alike) else int(sum(alike) > len(alike) / 2)), (sum(alike),)

    def judge(self, exercise, trial, right):
        mine, its = self.seen(trial), self.seen(right)
        if mine != its:
            raise Wrong(f"you read {mine} numbers from the files, where {its} are this rank's")


@exercise(
    title="Read on q ranks what p ranks wrote",
    minutes=20,
    difficulty=3,
    test_cases=test_cases,
    targets=[
        Own("neither tinydist.zero nor a checkpoint library", "find the overlaps yourself", SOLVED),
        Values("this rank's shard of the row, float32, padded with zeros; 1 to 4 files, 1 to 5 ranks that read"),
        Read("each number that is this rank's is read once, and no other"),
    ],
    mistakes=[
        mistake(
            "These are numbers by their place in a file. A file's first number stands in the row behind all numbers of "
            "the files before it",
            "file.read(first - at, last - at)",
            "file.read(first % len(file), first % len(file) + last - first)",
        ),
        mistake(
            "They stand at the wrong place in the shard: its first number is `rank * part` of the row",
            "shard[first - mine : last - mine]",
            "shard[: last - first]",
        ),
        mistake(
            "A file is read up to its end, and what is behind the shard is thrown away: stop where the shard stops",
            "file.read(first - at, last - at)",
            "file.read(first - at, len(file))[: last - first]",
        ),
        mistake(
            "A file is read from its beginning, and what is before the shard is thrown away: start where the shard "
            "starts",
            "file.read(first - at, last - at)",
            "file.read(0, last - at)[first - at :]",
        ),
        mistake(
            "All files are read, and most numbers are thrown away: with 1,000 files every rank would read all",
            "        if first < last:\n",
            "        whole = file.read(0, len(file)) if len(file) else None\n        if first < last:\n",
            "file.read(first - at, last - at)",
            "whole[first - at : last - at]",
        ),
        mistake(
            "Files that have a number of this rank's are read whole, and the others' numbers are thrown away",
            "            shard[first - mine : last - mine] = file.read(first - at, last - at)",
            "            whole = file.read(0, len(file))\n"
            "            shard[first - mine : last - mine] = whole[first - at : last - at]",
        ),
    ],
    hints=[
        "Forget the files first: which numbers of the whole row are this rank's, from where to where?",
        "Then which numbers of the row are in file i? It begins where the files before it end.",
        "Two ranges [a, b) and [c, d) overlap in [max(a, c), min(b, d)), if that is not empty. Read this from the "
        "file, counted from its own beginning, and write it into the shard, counted from the shard's.",
    ],
    why="A file that says which numbers of which parameter it has can be read by any number of ranks: this is how "
    "torch.distributed.checkpoint and Megatron-LM's torch_dist load on another cluster. Each rank reads what is its "
    "own, so that together the ranks read each file once.",
)
def read_shard(files, total, rank, readers):
    """Read this rank's shard of a checkpoint that another number of ranks has written.

    A row of ``total`` float32 numbers lies in ``files``, one after another; ``len(file)`` is how many numbers a file
    has (the last ones may have fewer, or none), and ``file.read(start, stop)`` returns the numbers ``start`` to
    ``stop - 1`` of this file, at least one. Now ``readers`` ranks cut the row into equal parts, rounded up. Return the
    part of ``rank``: behind the end of the row it has zeros. Read no number that is not this rank's.
    """
    part = -(-total // readers)
    mine, end = rank * part, (rank + 1) * part
    shard = torch.zeros(part)
    at = 0  # where in the row the file begins
    for file in files:
        # ? Which numbers of the row are in this file and in the shard? Where do they stand in each?
        first, last = max(mine, at), min(end, at + len(file))
        if first < last:
            shard[first - mine : last - mine] = file.read(first - at, last - at)
        # .
        at += len(file)
    return shard
