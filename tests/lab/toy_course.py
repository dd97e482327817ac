"""A course of one chapter and one exercise, in a folder of its own: what the lab finds, writes and judges there."""

import sys
import textwrap

import pytest

from tinydist.syllabus.registry import find

CHAPTER = '''
"""The only chapter."""

import torch

from tinydist.lab.author import Case

ORDER = ["average"]
INTRODUCTION = "# Exercises: averages"
IMPORTS = "import torch.distributed as dist\\n\\nfrom tinydist.lab import check"
SOLVED = ("tinydist.collectives",)


def numbers(rank, count):
    return torch.arange(float(count)).square() + 10 * rank + 0.5


def test_cases():
    for ranks, count in [(2, 4), (3, 5), (1, 4)]:
        yield Case(ranks, lambda rank, count=count: (numbers(rank, count),), f"{count} numbers each")
    for ranks in (2, 3):
        yield Case(ranks, lambda rank: (numbers(rank, 8192),), "8,192 numbers each", measured=True)
'''

AVERAGE = '''
"""The mean of all ranks' numbers."""

import torch.distributed as dist

from tinydist.lab.author import Bytes, Memory, Own, Values, exercise, mistake

from .chapter import SOLVED, test_cases


@exercise(
    title="Average",
    minutes=5,
    difficulty=1,
    test_cases=test_cases,
    targets=[
        Values("the mean of all ranks' tensors, in a new one"),
        Own("all_reduce alone", "write it", SOLVED, torchs="mean"),
        Bytes("2 (p-1)/p n"),
        Memory("one tensor besides the argument"),
    ],
    mistakes=[
        mistake("This is the sum: divide by the number of ranks", "total /= p", "pass"),
        mistake("This divides by one rank too few", "total /= p", "total /= max(1, p - 1)"),
    ],
    hints=["What does all_reduce leave on each rank?", "A sum.", "Divide it."],
    why="Gradients are averaged so. With many ranks it is all that they say.",
)
def average(tensor):
    """Return the mean of ``tensor`` over all ranks; ``tensor`` stays what it is.

    The result is a new tensor."""
    p = dist.get_world_size()
    # ? Sum over all ranks, and divide.
    total = tensor.clone()
    dist.all_reduce(total)
    total /= p
    return total
'''


@pytest.fixture
def toy(tmp_path, monkeypatch):
    """The exercise; its folder is ``tmp_path / "solutions"``, and no other is found."""
    folder = tmp_path / "solutions" / "98_toys"
    folder.mkdir(parents=True)
    (tmp_path / "exercises").mkdir()
    (folder / "chapter.py").write_text(textwrap.dedent(CHAPTER))
    (folder / "average.py").write_text(textwrap.dedent(AVERAGE))
    monkeypatch.setenv("TINYDIST_EXERCISES", str(folder.parent))
    yield find("average")
    for name in [name for name in sys.modules if name.split(".")[0] == "98_toys"]:
        del sys.modules[name]
