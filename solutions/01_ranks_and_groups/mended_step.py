"""A training step that hangs at two places, to be mended."""

import re

import torch
import torch.distributed as dist

from tinydist.lab.author import Bytes, Case, Seconds, Target, Values, Waits, Wrong, exercise, mistake
from tinydist.rules import ranks_in_words

ROUNDED = 0.051  # a mean may be printed with one digit behind the point


def world(ranks, measured=False):
    def arguments(rank):
        return torch.arange(1000.0) + 1000 * rank, torch.tensor(rank + 0.25)

    return Case(ranks, arguments, "1,000 numbers and a loss each", measured)


def test_cases():
    for ranks in (2, 3, 4, 1):
        yield world(ranks)
    yield world(5, measured=True)


class Printed(Target):
    """By rank 0 alone; in which words, is free."""

    name = "printed"

    def judge(self, exercise, trial, right):
        mean = right.returned[0][1].item()
        lines = [re.match(r"(?:\[rank (\d+)\] )?(.*)", line).groups() for line in trial.printed]
        told = [int(rank or 0) for rank, text in lines if any(abs(each - mean) < ROUNDED for each in numbers_in(text))]
        if 0 not in told:
            raise Wrong(f"rank 0 does not print the mean loss, {mean:g}")
        if any(told):
            raise Wrong(f"{ranks_in_words(sorted(set(told)))} print the mean loss: once is enough, by rank 0")


def numbers_in(text):
    return map(float, re.findall(r"-?\d+(?:\.\d+)?(?:e[+-]?\d+)?", text))


def note(answer):
    called = set(answer.__code__.co_names)
    if "batch_isend_irecv" in called or not called & {"isend", "irecv"}:
        return ""
    return (
        "You posted the two messages one by one. Here and with gloo that is right, but with nccl it can hang: on two "
        "ranks, what one sends the other waits in one queue on the GPU, behind what it sends itself, unless both are "
        "posted together, with batch_isend_irecv."
    )


@exercise(
    title="Mend two hangs",
    minutes=15,
    difficulty=2,
    test_cases=test_cases,
    targets=[
        Values(
            "on 1 to 5 ranks, the left neighbor's numbers and the mean loss",
            ["the neighbor's numbers", "the mean loss"],
            scratch=True,
        ),
        Waits("each message is received and waited for"),
        Bytes("one message from each rank, and one all-reduce of a number", names=True),
        Seconds(
            "one message, and the all-reduce: all messages travel at the same time",
            "The messages go one after the other: let each rank post both of its messages, and then wait",
            room=1.05,
        ),
        Printed("rank 0 prints the mean, and no other rank"),
    ],
    mistakes=[
        mistake(
            "Every rank stands in send, and nobody receives. Post both messages with batch_isend_irecv, and then "
            "wait for them",
            "        sending = dist.P2POp(dist.isend, numbers, right)\n"
            "        receiving = dist.P2POp(dist.irecv, arrived, left)\n"
            "        for work in dist.batch_isend_irecv([sending, receiving]):\n"
            "            work.wait()\n",
            "        dist.send(numbers, right)\n        dist.recv(arrived, left)\n",
            given=True,
        ),
        mistake(
            "Rank 0 calls an all_reduce that the others do not call: take the collective out of the if, and leave "
            "the print in it",
            "    dist.all_reduce(loss)\n    loss /= p\n    if rank == 0:\n        print",
            "    if rank == 0:\n        dist.all_reduce(loss)\n        loss /= p\n        print",
            given=True,
        ),
        mistake("The loss is the sum, where the mean is asked for", "    loss /= p\n", ""),
        mistake(
            "Each rank returns its own loss: nobody has summed them",
            "    dist.all_reduce(loss)\n    loss /= p\n",
            "",
        ),
        mistake(
            "The numbers go the wrong way round: to the right neighbor, rank + 1",
            "right, left = (rank + 1) % p, (rank - 1) % p",
            "left, right = (rank + 1) % p, (rank - 1) % p",
        ),
        mistake(
            "Only rank 0 receives the sum of the losses, where all ranks return the mean",
            "dist.all_reduce(loss)",
            "dist.reduce(loss, 0)",
        ),
    ],
    hints=[
        "Run the program with tinydist.launch(lambda: mended_step(torch.ones(3), torch.ones(())), 3) and read the "
        "report: in which call does each rank wait?",
        "The first hang is puzzle 3 of the chapter, with more than two ranks. Who receives, while all of them send?",
        "The second hang is puzzle 2. Which of the lines in the if are for all ranks, and which for rank 0 alone?",
    ],
    why="The first hang stops at its own line: no message can travel before somebody receives. The second one mixes up "
    "numbers first, and comes a call later, at another line.",
    note=note,
)
def mended_step(numbers, loss):
    """Send ``numbers`` to the right neighbor, rank + 1 (of the last rank: rank 0), and
    average ``loss``, a tensor of one number. Return the numbers that have come from the
    left neighbor, and the mean loss. Rank 0 prints the mean.

    This is a colleague's program. It hangs, and when the first hang is mended it hangs
    again. Mend both.
    """
    rank, p = dist.get_rank(), dist.get_world_size()
    right, left = (rank + 1) % p, (rank - 1) % p
    arrived = numbers.clone()
    if p > 1:
        sending = dist.P2POp(dist.isend, numbers, right)
        receiving = dist.P2POp(dist.irecv, arrived, left)
        for work in dist.batch_isend_irecv([sending, receiving]):
            work.wait()
    dist.all_reduce(loss)
    loss /= p
    if rank == 0:
        print("mean loss", loss.item())
    return arrived, loss
