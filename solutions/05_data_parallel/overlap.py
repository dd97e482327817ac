"""Buckets whose all-reduces run while backward goes on, although a gradient may never come."""

import math

import torch
import torch.distributed as dist

from tinydist.hardware import Cluster, Device, Link
from tinydist.lab.author import Case, Collectives, Memory, Own, Seconds, Values, Waits, Wrong, exercise, mistake

from .chapter import (
    LAYER,
    ROWS,
    SOLVED,
    WIDTH,
    Branches,
    Chain,
    FirstIsLast,
    SecondIsFirst,
    Skips,
    backward,
    build,
    gradients,
)

SAME_ORDER = "All ranks must start the buckets in their order, each once it is full and those before it have started"
REST = """        for bucket in buckets[len(started) :]:
            for each in bucket:
                if each.grad is None:
                    each.grad = torch.zeros_like(each)
            start(bucket)
"""
FEW, MORE = 2, 4  # steps
PRODUCT = 10e-6  # seconds: only matrix products and messages take time
PRODUCTS = Device("products", {"float32": 2 * ROWS * WIDTH * WIDTH / PRODUCT}, math.inf, math.inf)
SLOW = Link("a link on which all-reduces take longer than backward", 1e-6, LAYER / 25e-6)
FAST = Link("a link on which backward takes longer than all-reduces", 0.1e-6, LAYER / 2e-6)


def case(ranks, counts, steps=1, measured=False, dtype=torch.float32):
    kind = "" if dtype == torch.float32 else f" of {str(dtype).removeprefix('torch.')}"
    about = f"buckets of {', '.join(map(str, counts))} layers{kind}, {steps} step{'s' * (steps > 1)}"
    return Case(ranks, lambda rank: (build(Chain, counts, rank).to(dtype), steps), about, measured, facts=steps)


def first_is_last(ranks, counts, steps=2):
    about = f"buckets of {', '.join(map(str, counts))} layers, of which the first is full last, {steps} steps"
    return Case(ranks, lambda rank: (build(FirstIsLast, counts[::-1], rank), steps), about, facts=steps)


def second_is_first(ranks, counts):
    about = f"buckets of {counts[1]}, {counts[0]}, {counts[2]} layers, of which the second is full first, 1 step"
    return Case(ranks, lambda rank: (build(SecondIsFirst, counts, rank), 1), about, True, facts=1)


def branches(ranks, steps=2):
    about = f"two branches that odd ranks compute in another order, {steps} steps"
    return Case(ranks, lambda rank: (build(Branches, (), rank), steps), about, facts=steps)


def skips(ranks, counts, *left_out, measured=False):
    """``left_out``: of each step, the layer that each rank leaves out."""
    about = f"buckets of {', '.join(map(str, counts))} layers, of which ranks leave some out, {len(left_out)} steps"

    def arguments(rank):
        return build(Skips, counts, [step[rank] for step in left_out]), len(left_out)

    return Case(ranks, arguments, about, measured, facts=len(left_out))


def test_cases():
    yield from (case(ranks, (1, 2, 3), FEW) for ranks in (2, 3, 1))
    yield from (branches(ranks) for ranks in (2, 3))
    yield first_is_last(2, (2, 1, 3))
    yield case(2, (1, 2, 1), FEW, dtype=torch.float64)
    yield skips(2, (1, 2, 1), (None, 2), (0, 3))
    yield skips(3, (1, 2, 3), (1, 1, 1), (None, 4, 0))
    for ranks, counts in [(2, (1, 2, 3)), (4, (3, 1, 3)), (2, (1, 1, 1, 1))]:
        yield case(ranks, counts, measured=True)
    yield skips(2, (1, 2, 1), (None, 0), (0, None), measured=True)
    yield second_is_first(2, (9, 1, 1))
    yield case(2, (1, 2, 3), MORE, measured=True)


def train(answer, model, steps):
    """What the learner's hooks leave: gradients, after each step."""
    rank = dist.get_rank()
    finish = answer([list(bucket) for bucket in model.buckets])
    if not callable(finish):
        what = "None" if finish is None else f"a {type(finish).__name__}"
        raise Wrong(f"on rank {rank} it returned {what}, where it should return the function finish")
    found = {}
    for step in range(steps):
        backward(model, rank, step)
        finish()
        found[f"step {step}"] = gradients(model)
    return found


@exercise(
    title="Overlap, though a gradient may be missing",
    minutes=35,
    difficulty=4,
    test_cases=test_cases,
    program=train,
    targets=[
        Own("neither tinydist.data_parallel nor torch's DDP", "use the collectives of torch.distributed", SOLVED),
        Collectives(
            "one all-reduce for each bucket, in the order of buckets on every rank",
            "one for each bucket, in each step",
            SAME_ORDER,
        ),
        Waits("every all-reduce is waited for"),
        Values(
            "the mean over the ranks in every gradient, after each of several steps, zeros where a rank has none; "
            "1, 2, 3 and 4 ranks",
            scratch=True,
        ),
        Seconds(
            "max(backward, communication) + a tail: an all-reduce starts when its bucket is full, or when the one "
            "before it has ended",
            "Start each in the hook that makes its bucket full, with async_op=True, and wait in finish",
            clusters=lambda case: [Cluster(PRODUCTS, case.ranks, link) for link in (SLOW, FAST)],
        ),
        Memory(f"as many bytes after {MORE} steps as after {FEW}", slack=6 * LAYER),
    ],
    mistakes=[
        mistake(
            "This is one all-reduce for each parameter: a bucket travels in one",
            "    p = dist.get_world_size()",
            "    buckets = [[each] for bucket in buckets for each in bucket]\n    p = dist.get_world_size()",
        ),
        mistake(
            "The second step makes none: at its end finish must bring all back to where it began. Is `started` empty "
            "again?",
            "        started.clear()",
            "",
        ),
        mistake(
            "After the first step every bucket counts as full: at its end finish must make the sets of missing "
            "parameters anew: that a gradient is there says nothing, as it may be an old one, made zero in place",
            "        missing[:] = [set(bucket) for bucket in buckets]\n",
            "",
        ),
        mistake(
            f"Ranks start them in different orders. {SAME_ORDER}",
            "    p = dist.get_world_size()",
            "    buckets = buckets[::-1] if dist.get_rank() == 1 else buckets\n    p = dist.get_world_size()",
        ),
        mistake(
            "A hook starts one bucket at most, and others that are full wait for the next hook: as long as the next "
            "one in line is full, start it",
            "while len(started)",
            "if len(started)",
        ),
        mistake(
            "A bucket in which a gradient is missing never starts, and the other ranks wait for it. When backward has "
            "ended nothing comes any more: finish must start what has not started",
            REST,
            "",
        ),
        mistake(
            "A parameter that this rank has left out keeps its own gradient, or none. The other ranks step with the "
            "mean of all, and from now on the weights differ: it needs that mean, too",
            "                each.grad.copy_(mean.view_as(each))",
            "                if each not in set().union(*missing):\n"
            "                    each.grad.copy_(mean.view_as(each))",
        ),
        mistake(
            "A gradient that is missing is a hole in the bucket: the numbers after it are added to those of other "
            "parameters. Put zeros in its place",
            "            for each in bucket:\n                if each.grad is None:\n                    each.grad = "
            "torch.zeros_like(each)\n            start(bucket)",
            "            start([each for each in bucket if each.grad is not None])",
        ),
    ],
    hints=[
        "A hook runs in the middle of backward. If it waits, backward waits. What does dist.all_reduce return with "
        "async_op=True, and who should wait for it?",
        "Keep, for each bucket, the set of parameters whose gradient is still missing. The hook takes one out. A "
        "bucket with an empty set is full.",
        "Two ranks may fill their buckets in different orders, but collectives meet in the order in which they are "
        "called. So start bucket i only after bucket i-1: while the next bucket in line is full, start it.",
        "No hook tells you that a gradient will not come. When do you know it for certain? Which buckets have not "
        "started by then, and in which order must they go?",
        "In finish, first give each parameter without a gradient zeros, and start the buckets that are left, in their "
        "order. Then wait, divide by p, split, and copy into all gradients, also those that were missing here.",
    ],
    why="This is what DistributedDataParallel does, and why it scales. With find_unused_parameters=True it does better "
    "by one thing: it walks over the graph before backward and knows what will be missing, so that a bucket need not "
    "wait for the end. Without that flag PyTorch raises an error where you have sent zeros.",
)
def overlap(buckets):
    """Average gradients while backward runs, although a rank's loss may leave some parameters out.

    ``buckets`` are lists of parameters, the same on every rank. Register a hook on each parameter, and return a
    function ``finish()``: it is called after each backward, and leaves the mean over the ranks in every
    ``parameter.grad``. A bucket's all-reduce starts as soon as its last gradient is there; all ranks start the buckets
    in their order. A parameter that a rank has left out counts as zeros there, and nobody knows before the end of
    backward which one that is: its hook never runs, and its gradient may be None.
    Layers are 8 wide, in fp32, and in one world in fp64: send what you find.
    """
    p = dist.get_world_size()
    missing = [set(bucket) for bucket in buckets]  # whose gradients are not there yet
    started = []  # for each bucket that travels: what finish needs

    # -
    def start(bucket):
        flat = torch.cat([each.grad.flatten() for each in bucket])
        started.append((flat, dist.all_reduce(flat, async_op=True)))

    # .
    def ready(parameter):
        # ? Its gradient is there now. Which buckets can start?
        for parameters in missing:
            parameters.discard(parameter)
        while len(started) < len(buckets) and not missing[len(started)]:  # in their order, on every rank
            start(buckets[len(started)])

    def finish():
        # ? Backward has ended: what has not started? Wait for each bucket and write its means back. Begin anew.
        for bucket in buckets[len(started) :]:
            for each in bucket:
                if each.grad is None:
                    each.grad = torch.zeros_like(each)
            start(bucket)
        for bucket, (flat, work) in zip(buckets, started):
            work.wait()
            for each, mean in zip(bucket, (flat / p).split([each.numel() for each in bucket])):
                each.grad.copy_(mean.view_as(each))
        missing[:] = [set(bucket) for bucket in buckets]
        started.clear()

    for bucket in buckets:
        for parameter in bucket:
            parameter.register_post_accumulate_grad_hook(ready)
    return finish
