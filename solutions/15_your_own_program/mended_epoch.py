"""A training loop that hangs where ranks have unlike numbers of batches, and where they decide by their own loss."""

import torch
import torch.distributed as dist

from tinydist.lab.author import Bytes, Case, Values, also, exercise, mistake


def case(counts, limit=0.0, dtype=torch.float32, measured=False):
    """``counts``: batches of each rank."""

    def arguments(rank):
        draw = torch.Generator().manual_seed(rank)
        rows = [torch.randn(3 + (rank + number) % 2, 4, generator=draw, dtype=dtype) for number in range(counts[rank])]
        return rows, torch.ones(4, dtype=dtype), limit

    told = f"{', '.join(map(str, counts))} batches" + f", until the loss is below {limit}" * (limit > 0)
    return Case(len(counts), arguments, told, measured)


def of_ones(counts):
    """Rows of 0.4, so that all losses of a step are alike, and a rank without batches shows how they are averaged."""

    def arguments(rank):
        return [torch.full((3, 4), 0.4)] * counts[rank], torch.ones(4), 1.5

    return Case(len(counts), arguments, f"{', '.join(map(str, counts))} batches of 0.4, until the loss is below 1.5")


def unlike(values):
    """Each rank has rows of its own value: one rank's loss is above the limit, and the mean of all is below it."""

    def arguments(rank):
        return [torch.full((3, 4), values[rank])] * 3, torch.ones(4), 2.2

    told = " and ".join(map(str, values))
    return Case(len(values), arguments, f"3 batches on each rank, of {told}, until the loss is below 2.2")


def test_cases():
    yield case((3, 3))
    yield case((4, 2))
    yield case((2, 3, 4))
    yield case((6, 6, 6), limit=1.0)
    yield case((3, 7, 5, 0), limit=0.8)
    yield of_ones((3, 0))  # right: 2.56 and on; the mean of the ranks' means is 1.28
    yield of_ones((0, 3))
    yield unlike((0.3, 0.4))
    yield case((5,))
    yield case((0, 2), dtype=torch.float64)
    yield case((20, 13, 17), measured=True)  # many steps: what is sent once for all of them hardly counts


TOGETHER = "        dist.all_reduce(sums)\n"
ONE_BY_ONE = """\
        for part in (sums[:-2], sums[-2:-1], sums[-1:]):
            dist.all_reduce(part)
"""


DECIDED = "        if sums[-2] / sums[-1] < limit:\n"
OWN_MEAN = "        mean = own[-2:-1] / own[-1].clamp(min=1)\n"
MEAN_OF_MEANS = OWN_MEAN + "        dist.all_reduce(mean)\n        if mean / dist.get_world_size() < limit:\n"
RANK_0S = OWN_MEAN + "        dist.broadcast(mean, 0)\n        if mean < limit:\n"
MOVED = "        weight = weight - 0.1 * sums[:-2] / sums[-1]\n        steps += 1\n"


@exercise(
    title="Mend a loop that hangs",
    minutes=20,
    difficulty=2,
    test_cases=test_cases,
    targets=[
        Values(
            "on 1 to 4 ranks with 0 to 20 batches of 3 or 4 rows each: the weight, and the number of steps",
            ["the weight", "the steps"],
            scratch=True,
        ),
        Bytes(
            "on 3 ranks with up to 20 batches: 6 numbers in each step (the gradient's 4, the loss, the rows) and one "
            "number before; or one number more in each step",
            together=True,
            room=1.35,  # a number of 8 bytes in each of 20 steps takes 1.34
            measured=True,
        ),
    ],
    mistakes=[
        mistake(
            "A rank without batches leaves the loop, and the others wait for it in the next all-reduce. All take "
            "part in as "
            "many steps as the longest has, with zeros where they have no rows",
            "for step in range(int(most)):",
            "for step in range(len(batches)):",
            given=True,
        ),
        mistake(
            "Each rank decides by its own loss: one stops, and the others wait for it. Decide by the loss of all",
            "if sums[-2] / sums[-1] < limit:",
            "if step < len(batches) and own[-2] / own[-1] < limit:",
            given=True,
        ),
        mistake(
            "A rank without rows has a mean loss of zero in this mean of means, and the loop ends too early: divide "
            "the sum of the losses by the sum of the rows",
            DECIDED,
            MEAN_OF_MEANS,
        ),
        mistake(
            "Rank 0 decides by its own loss, and tells the others. Nothing hangs, and the loss is not that of all",
            DECIDED,
            RANK_0S,
        ),
        mistake(
            "The step in which the loss is below the limit is left out: the loop ends with it, and it moves the weight",
            MOVED + DECIDED + "            break\n",
            DECIDED + "            break\n" + MOVED,
        ),
        mistake(
            "The loop ends with the shortest rank, and the other ranks' last batches are never seen",
            "dist.ReduceOp.MAX",
            "dist.ReduceOp.MIN",
        ),
        mistake(
            "Batches have 3 or 4 rows, so a mean of means is not the mean: add up sums and rows, and divide once",
            "sums = own.clone()",
            "sums = own / own[-1].clamp(min=1)",
        ),
        mistake(
            "The gradient of the square is twice the error",
            "2 * errors @ rows",
            "errors @ rows",
        ),
    ],
    alternatives=[also(TOGETHER, ONE_BY_ONE)],  # a count that travels alone is not changed on the way
    hints=[
        "Run it with tinydist.launch and two lists of unlike lengths. Who waits in which call, and where is the other?",
        "All ranks need the same number of steps before the loop begins. Who knows it?",
        "What does a rank without rows add to a sum of gradients, of losses and of rows?",
    ],
    why="Datasets are rarely divisible by ranks: DistributedSampler repeats samples, DDP has join(), and an "
    "IterableDataset has "
    "neither. Early stopping and best checkpoints by a rank's own loss hang in the same way, and only sometimes.",
)
def mended_epoch(batches, weight, limit):
    """Train ``weight`` on all ranks together, and return it, and the number of steps.

    This is a colleague's program, and it hangs. Each rank has its own list of batches, tensors of rows, and
    lists may be of unlike lengths, or empty. The loss of a row is (row @ weight) squared. In each step the
    weight moves by 0.1 times the gradient of the mean loss of all rows that all ranks have in this step. The
    loop ends when no rank has batches, or with the step in which that mean loss is below ``limit``.
    """
    most = torch.tensor(len(batches))
    dist.all_reduce(most, dist.ReduceOp.MAX)
    steps = 0
    for step in range(int(most)):
        own = weight.new_zeros(len(weight) + 2)  # gradient, loss, rows: sums over the rows
        if step < len(batches):
            rows = batches[step]
            errors = rows @ weight
            own[:-2] = 2 * errors @ rows
            own[-2] = errors.square().sum()
            own[-1] = len(rows)
        sums = own.clone()
        dist.all_reduce(sums)
        weight = weight - 0.1 * sums[:-2] / sums[-1]
        steps += 1
        if sums[-2] / sums[-1] < limit:
            break
    return weight, steps
