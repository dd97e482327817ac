"""Gradients that lie in their buckets, whose all-reduces run while backward goes on, although one may never come."""

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
IN_ORDER = """        while len(works) < len(buckets) and not missing[len(works)]:  # in their order, on every rank
            works.append(dist.all_reduce(flats[len(works)], async_op=True))
"""
REST = """        for flat in flats[len(works) :]:
            works.append(dist.all_reduce(flat, async_op=True))
"""
FEW, MORE = 2, 4  # steps
PRODUCT = 10e-6  # seconds: only matrix products and messages take time
PRODUCTS = Device("products", {"float32": 2 * ROWS * WIDTH * WIDTH / PRODUCT}, math.inf, math.inf)
SLOW = Link("a link on which all-reduces take longer than backward", 1e-6, LAYER / 25e-6)
FAST = Link("a link on which backward takes longer than all-reduces", 0.1e-6, LAYER / 2e-6)


def case(ranks, counts, steps=1, measured=False, dtype=torch.float32, rows=ROWS):
    kind = "" if dtype == torch.float32 else f" of {str(dtype).removeprefix('torch.')}"
    about = f"buckets of {', '.join(map(str, counts))} layers{kind}, {steps} step{'s' * (steps > 1)}"
    return Case(ranks, lambda rank: (build(Chain, counts, rank).to(dtype), steps, rows), about, measured, facts=steps)


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
    yield from (case(2, (1, 2, 3), steps, measured=True, rows=1) for steps in (FEW, MORE))  # few activations


def train(answer, model, steps, rows=ROWS):
    """What the learner's hooks leave: gradients, after each step."""
    rank = dist.get_rank()
    finish = answer([list(bucket) for bucket in model.buckets])
    if not callable(finish):
        what = "None" if finish is None else f"a {type(finish).__name__}"
        raise Wrong(f"on rank {rank} it returned {what}, where it should return the function finish")
    found, buffers = {}, [buffer_of(bucket, f"before backward, on rank {rank},") for bucket in model.buckets]
    for step in range(steps):
        backward(model, rank, step, rows)
        finish()
        when = f"after step {step}, on rank {rank},"
        if [buffer_of(bucket, when) for bucket in model.buckets] != buffers:
            raise Wrong(
                f"{when} gradients lie in other buffers than before: leave the means where the sums have arrived"
            )
        found[f"step {step}"] = gradients(model) if rows == ROWS else sums(model)
    return found


def sums(model):
    """Of each gradient, where bytes are judged: copies would hide others."""
    return {f"{name}.grad": parameter.grad.sum() for name, parameter in model.named_parameters()}


def buffer_of(bucket, when):
    """The one in which the gradients of the bucket lie."""
    buffers = {each.grad is not None and each.grad.untyped_storage().data_ptr() for each in bucket}
    if False in buffers:
        raise Wrong(
            f"{when} a parameter has no gradient: from the beginning it should be a view of its bucket's buffer"
        )
    if len(buffers) > 1:
        raise Wrong(f"{when} {len(bucket)} gradients of a bucket lie in {len(buffers)} buffers, where one is right")
    return buffers.pop()


@exercise(
    title="Overlap in place, though a gradient may be missing",
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
        Memory("each gradient once, in the buffer of its bucket, and nothing from step to step", slack=4 * LAYER),
    ],
    mistakes=[
        mistake("This is the sum over the ranks: divide it by their number", "            flat /= p\n", ""),
        mistake(
            "It is divided by the number of ranks twice: a mean is divided once, before the sum or after it",
            "            flat /= p\n",
            "            flat /= p * p\n",
        ),
        mistake(
            "The second step makes none: at its end finish must bring all back to where it began. Is `works` empty "
            "again?",
            "        works.clear()",
            "",
        ),
        mistake(
            "After the first step every bucket counts as full: at its end finish must make the sets of missing "
            "parameters anew: that a gradient is there says nothing, as here it is there from the beginning",
            "        missing[:] = [set(bucket) for bucket in buckets]\n",
            "",
        ),
        mistake(
            f"Ranks start them in different orders, each as it fills them. {SAME_ORDER}",
            "works = []",
            "works = {}",
            IN_ORDER,
            """        for number, flat in enumerate(flats):
            if number not in works and not missing[number]:
                works[number] = dist.all_reduce(flat, async_op=True)
""",
            REST,
            """        for number, flat in enumerate(flats):
            if number not in works:
                works[number] = dist.all_reduce(flat, async_op=True)
""",
            "zip(flats, works)",
            "zip(flats, [works[number] for number in range(len(flats))])",
        ),
        mistake(
            "A hook starts one bucket at most, and others that are full wait for the next hook: as long as the next "
            "one in line is full, start it",
            "while len(works)",
            "if len(works)",
        ),
        mistake(
            "A bucket in which a gradient is missing never starts, and the other ranks wait for it. When backward has "
            "ended nothing comes any more: finish must start what has not started",
            REST,
            "",
        ),
    ],
    hints=[
        "A gradient that is there before backward is added to, in place. So make one buffer of zeros for each bucket, "
        "and let each parameter.grad be a view of its part: split and view_as.",
        "A hook runs in the middle of backward. If it waits, backward waits. What does dist.all_reduce return with "
        "async_op=True, and who should wait for it?",
        "Keep, for each bucket, the set of parameters whose gradient is still missing. The hook takes one out. Start "
        "bucket i only after bucket i-1: while the next bucket in line is full, start it.",
        "No hook tells you that a gradient will not come. When do you know it for certain? Which buckets have not "
        "started by then, and in which order must they go? What stands in the buffer in place of such a gradient?",
        "In finish, start the buffers that are left, in their order. Then wait for each, divide the buffer by p in "
        "place, and begin anew: sets of missing parameters, and no works.",
    ],
    why="This is what DistributedDataParallel does with gradient_as_bucket_view=True: it needs no second copy of all "
    "gradients, and none is made. With find_unused_parameters=True it does better by one thing: it walks over the "
    "graph before backward and knows what will be missing, so that a bucket need not wait for the end. Without that "
    "flag PyTorch raises an error where you have sent zeros.",
)
def overlap(buckets):
    """Average gradients while backward runs, in place, although a rank's loss may leave some parameters out.

    ``buckets`` are lists of parameters, the same on every rank. Give each bucket one flat buffer, of which every
    ``parameter.grad`` is a view, from the beginning on: nothing is copied in or out. Register a hook on each parameter,
    and return a function ``finish()``: it is called after each backward, and leaves the mean over the ranks in every
    ``parameter.grad``. A bucket's all-reduce starts as soon as its last gradient is there; all ranks start the buckets
    in their order. Nobody knows before the end of backward which parameter a rank leaves out: its hook never runs, and
    it counts as zeros there. Before each backward all gradients are made zero in place (``set_to_none=False``).
    Layers are 8 wide, in fp32, and in one world in fp64: send what you find.
    """
    p = dist.get_world_size()
    missing = [set(bucket) for bucket in buckets]  # whose gradients are not there yet
    flats = []  # for each bucket, the buffer in which its gradients lie
    works = []  # for each bucket that travels, what finish waits for

    for bucket in buckets:
        # ? Make its buffer. How do gradients come to lie in it?
        flat = torch.cat([torch.zeros_like(each).flatten() for each in bucket])
        for each, part in zip(bucket, flat.split([each.numel() for each in bucket])):
            each.grad = part.view_as(each)
        flats.append(flat)

    def ready(parameter):
        # ? Its gradient is there now. Which buckets can start?
        for parameters in missing:
            parameters.discard(parameter)
        while len(works) < len(buckets) and not missing[len(works)]:  # in their order, on every rank
            works.append(dist.all_reduce(flats[len(works)], async_op=True))

    def finish():
        # ? Backward has ended: what has not started? Wait for each bucket, and make means of its sums. Begin anew.
        for flat in flats[len(works) :]:
            works.append(dist.all_reduce(flat, async_op=True))
        for flat, work in zip(flats, works):
            work.wait()
            flat /= p
        missing[:] = [set(bucket) for bucket in buckets]
        works.clear()

    for bucket in buckets:
        for parameter in bucket:
            parameter.register_post_accumulate_grad_hook(ready)
    return finish
