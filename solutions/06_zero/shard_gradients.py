"""Stage 2: gradients freed while backward runs, and added up in fp32 over microbatches."""

from collections import defaultdict

import torch
import torch.distributed as dist

from tinydist.lab.author import Case, Values, Wrong, exercise, mistake

from .chapter import BY_HAND, VIEW, Held, Sent, function, held_now, noted, numbers, of, weights

STEPS, MANY = 2, 8  # layers
OBLONG = [(64, 36), (36, 64)]
LAYER = 64 * 36 * 4  # bytes
SLACK = 64  # bytes: a number or two
REDUCED = "dist.reduce_scatter_single(part, parameter.grad.float().flatten())"
ADDED = ".add_(mine.get(parameter, 0))"
HOOKED = "        parameter.register_post_accumulate_grad_hook(ready)"
HANDED_OUT = "[mine.pop(parameter) for parameter in layers]"


def case(ranks, shapes, rows=1, microbatches=2, dtype=torch.float32, measured=False):
    def arguments(rank):
        return *(torch.nn.Parameter(weight) for weight in weights(shapes, dtype)), rows, microbatches, defaultdict(list)

    several = f"{microbatches} microbatch{'es' * (microbatches > 1)}"
    about = f"{len(shapes)} layers{of(dtype)}, {rows} row{'s' * (rows > 1)} in a batch, {STEPS} steps of {several}"
    return Case(ranks, arguments, about, measured)


def test_cases():
    alike, unlike = [(10, 6), (6, 10), (10, 6)], [(10, 6), (6, 10), (8, 6), (9, 8)]
    yield case(2, alike, microbatches=1)
    for ranks in (2, 3, 4, 1):
        yield case(ranks, unlike, rows=ranks)
    for ranks in (2, 3):  # of 3, backward's 16 bits divided by p would be rounded
        yield case(ranks, unlike, microbatches=5, dtype=torch.bfloat16)
    yield case(3, MANY // 2 * OBLONG, measured=True)


def train(answer, *given):
    """This rank's parts of the gradients, after each step; bytes are noted that it holds more than before the first."""
    *layers, rows, microbatches, held = given
    rank, found, before = dist.get_rank(), {}, held_now()
    collect = function(answer(list(layers)), "collect")
    for step in range(STEPS):
        for number in range(microbatches):
            backward(layers, rows, seed=1000 * number + 100 * step + rank)
            held["grad"].append(sum(layer.grad.nbytes for layer in layers if layer.grad is not None))
        parts = collect()
        complete(parts, len(layers), rank, step)
        found |= {f"the gradient of layer {number} in step {step}": noted(part) for number, part in enumerate(parts)}
        del parts
        held["kept"].append(held_now() - before)
    return found


def backward(layers, rows, seed):
    x = numbers(rows, layers[0].shape[1], seed=seed, dtype=layers[0].dtype)
    for layer in layers:
        x = torch.tanh(x @ layer.T)
    x.pow(2).sum().backward()


def complete(parts, count, rank, step):
    if not isinstance(parts, list | tuple) or not all(isinstance(each, torch.Tensor) for each in parts):
        kind = type(parts).__name__
        raise Wrong(f"in step {step} collect returned a {kind} on rank {rank}, where a list of tensors is right")
    if len(parts) != count:
        more = ": each step must begin with an empty list" if len(parts) == count * (step + 1) else ""
        raise Wrong(
            f"in step {step} collect returned {len(parts)} tensor{'s' * (len(parts) != 1)}, where {count} are right, "
            f"one a layer{more}"
        )


@exercise(
    title="Free gradients in time (stage 2)",
    minutes=20,
    difficulty=3,
    test_cases=test_cases,
    program=train,
    targets=[
        *BY_HAND,
        Values(
            "this rank's part of each layer's gradient, flat, in fp32: the mean over ranks, the sum over microbatches, "
            f"in each of {STEPS} steps; weights in 32 and in 16 bits; 1, 2, 3 and 4 ranks",
            scratch=True,
        ),
        Held(
            "freed",
            "after each backward no .grad is left",
            noted="grad",
            what="in .grad when backward has ended",
            advice="Set it to None in the hook, once the own part of the mean is there (or on its way, from a copy)",
        ),
        Held(
            "kept",
            "after collect as many bytes as before training",
            noted="kept",
            what="after collect more than before training",
            slack=SLACK,
            advice="What collect has handed out belongs to nobody any more: forget it, and make no buffers that stay",
        ),
        Held(
            "peak",
            f"the shards of {MANY} layers and a layer's gradient; two layers more are granted",
            slack=2 * LAYER,
            advice=f"What is whole must go in the hook that reduces it. {VIEW}. A collective that is not waited for "
            "keeps its input: wait in the hook, or for the one before",
        ),
        Sent("(p-1)/p of the gradients, 4 bytes a number: one reduce-scatter per layer and microbatch"),
    ],
    mistakes=[
        mistake(
            "These are the gradients of the last microbatch alone: add the own parts up until collect takes them",
            ADDED,
            "",
        ),
        mistake(
            "The ranks' gradients are added up in the 16 bits in which backward has made them: make them fp32 before "
            "they travel",
            REDUCED,
            "low = parameter.grad.new_empty(len(part))\n"
            "        dist.reduce_scatter_single(low, parameter.grad.flatten())\n"
            "        part.copy_(low)",
        ),
        mistake(
            "The microbatches are added up in 16 bits, where a small gradient is swallowed by the sum: keep the own "
            "part in fp32",
            ADDED,
            ADDED + ".to(parameter.dtype).float()",
        ),
        mistake(
            "These are the gradients of all passes so far: old ones are still there when backward adds. Where is .grad "
            "set to None, and the own part begun anew?",
            "        parameter.grad = None",
            "",
        ),
        mistake(
            "A rank has the mean gradient of another rank's shard, and not of its own",
            "grad.float().flatten())",
            "grad.float().flatten().roll(-part.numel()))",
        ),
        mistake(
            "The shards that collect has handed out are still there: forget them, with mine.clear() or mine.pop(), "
            "instead of setting them to zero",
            f"        return {HANDED_OUT}",
            "        found = [mine[parameter].clone() for parameter in layers]\n"
            "        for part in mine.values():\n            part.zero_()\n        return found",
        ),
        mistake(
            "All layers still have their .grad when backward has ended: reduce it and set it to None in the hook",
            HOOKED,
            "        pass",
            "        return [mine",
            "        for parameter in layers:\n            ready(parameter)\n        return [mine",
        ),
        mistake(
            "The shards are views (chunk, split) and keep the whole gradients: clone them",
            "part = torch.empty(parameter.numel() // p)",
            "part = torch.empty(parameter.numel()).chunk(p)[dist.get_rank()]",
        ),
    ],
    hints=[
        "The hook runs when its layer's gradient is there, and the gradients of the layers before it are not yet. "
        "What does this rank need of it? All else can go at once.",
        "Make the gradient fp32 and flat, reduce-scatter it into an empty part of numel/p numbers, and divide by p. In "
        "fp32 it is added to what the microbatches before it have left; then parameter.grad = None.",
        "collect returns the parts in the order of layers, and backward makes them in the other: keep them in a dict, "
        "parameter -> part. It hands them out and forgets them: clear the dict.",
    ],
    why="Whole gradients of all layers are never needed at the same time, so stage 2 holds 2 + 16/p bytes per "
    "parameter with sums in fp32. But each microbatch reduces anew: k + 1 passes over the model in a step, where "
    "stage 1, which keeps whole sums, sends 2. What if the ranks summed k microbatches on their own, and reduced once?",
)
def shard_gradients(layers):
    """Keep of each layer's gradient this rank's part alone, in fp32, and free the rest while backward runs.

    ``layers`` are parameters of 32 or 16 bits, one per layer; p divides the numbers of each. A step has several
    microbatches, and a backward for each. Register a hook on each layer, which adds this rank's part of the mean
    gradient over the ranks to what the microbatches before have left: all sums in fp32. Return a function
    ``collect()``: it is called after the last backward of a step, returns a list with this rank's part of each layer,
    flat, in the order of ``layers``, and keeps none of it. The hook may wait for its collective.
    """
    p = dist.get_world_size()
    mine = {}  # parameter -> this rank's part, so far

    def ready(parameter):
        # ? parameter.grad is there, whole. What is kept of it, in which dtype, and what is freed?
        part = torch.empty(parameter.numel() // p)
        dist.reduce_scatter_single(part, parameter.grad.float().flatten())
        mine[parameter] = part.div_(p).add_(mine.get(parameter, 0))
        parameter.grad = None

    def collect():
        # ? In the order of layers. The next step begins anew.
        return [mine.pop(parameter) for parameter in layers]

    for parameter in layers:
        parameter.register_post_accumulate_grad_hook(ready)
    return collect
