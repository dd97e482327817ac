"""Stage 3: a layer's weight is whole only while the layer runs."""

from collections import defaultdict

import torch
import torch.distributed as dist

from tinydist.lab.author import Case, Collectives, Values, Wrong, exercise, mistake

from .chapter import BY_HAND, VIEW, Held, Sent, held_now, noted, numbers, of, weights

STEPS, CHANGE = 2, 0.5
MANY, WIDTH = 5, 51
LAYER = 4 * WIDTH * WIDTH  # bytes
IN_FORWARD, IN_BACKWARD = "x @ gather(shard).T", "grad @ gather(shard)"
REDUCED = "dist.reduce_scatter_single(of_shard, (grad.T @ x).flatten())"
CLASS = "    class Linear("
WITH_ZEROS = """\
    def with_zeros(shard):
        row = shard.new_zeros(p, shard.numel())
        row[dist.get_rank()] = shard
        return row.view(rows, -1)

"""
KEPT = """\
    if not hasattr(shard, "whole"):
        shard.whole = gather(shard.detach())
    whole = shard.whole

"""


def case(ranks, shapes, batch=1, dtype=torch.float32, measured=False):
    def arguments(rank):
        wholes = weights(shapes, dtype)  # one at a time
        shards = [torch.nn.Parameter(whole.flatten().chunk(ranks)[rank].clone()) for whole in wholes]
        return *shards, shapes, batch, defaultdict(list)

    about = f"{len(shapes)} layers{of(dtype)}, x of {batch} row{'s' * (batch > 1)}, {STEPS} steps"
    return Case(ranks, arguments, about, measured)


def test_cases():
    unlike = [(6, 8), (10, 6), (6, 10)]
    yield case(3, 3 * [(6, 6)])  # twice too much is not once for each rank
    for ranks in (3, 2, 4, 1):
        yield case(ranks, unlike, batch=ranks)
    yield case(2, unlike, batch=3, dtype=torch.float64)
    yield case(3, MANY * [(WIDTH, WIDTH)], measured=True)


def train(answer, *given):
    """Each step's output and gradients; noted is what is held more after forward than before it. Nothing sets gradients
    of shards to None: those of all steps add up."""
    *shards, shapes, batch, held = given
    rank, found = dist.get_rank(), {}
    for step in range(STEPS):
        x = numbers(batch, shapes[0][1], seed=100 * step + rank, dtype=shards[0].dtype).requires_grad_()
        before, y = held_now(), x
        for layer, (shard, (rows, _)) in enumerate(zip(shards, shapes)):
            y = answer(y, shard, rows)
            look_at(y, [batch, rows], f"on rank {rank} layer {layer}")
            y = torch.tanh(y)
        found[f"the output of step {step}"] = noted(y)
        held["forward"].append(held_now() - before)
        y.pow(2).sum().backward()
        found[f"the gradient of x in step {step}"] = gradient_of(x, "x", rank)
        for layer, shard in enumerate(shards):
            found[f"the gradient of layer {layer}'s shard after step {step}"] = gradient_of(
                shard, f"the shard of layer {layer}", rank
            )
        del x, y
        with torch.no_grad():
            for shard in shards:
                shard *= CHANGE
    return found


def look_at(y, shape, which):
    if not isinstance(y, torch.Tensor) or list(y.shape) != shape:
        what = list(y.shape) if isinstance(y, torch.Tensor) else type(y).__name__
        raise Wrong(f"{which} returned {what}, where a tensor of shape {shape} is right")
    if not y.requires_grad:
        raise Wrong(
            f"what {which} returned has no backward: neither x nor the shard would get a gradient. Is its result that "
            "of Linear.apply?"
        )


def gradient_of(tensor, name, rank):
    if tensor.grad is None:
        raise Wrong(
            f"on rank {rank} {name} has no gradient: the way from the output to it is cut. An all-gather has no "
            "backward of its own: Linear.backward returns a gradient for each argument of forward"
        )
    return noted(tensor.grad)


def twice(trial, got, want, own, pick):
    if trial.case.ranks != 2 and all(torch.allclose(mine, 2 * right, atol=1e-6) for mine, right in zip(got, want)):
        return "It is twice what is right: is it added to shard.grad by hand? Autograd adds what backward returns"
    return None


class SentAsItIs(Sent):
    """In the dtype of the shard: as many calls as are right, with half of their bytes, are in another one."""

    def mistaken(self, exercise, trial, right, earlier=()):
        calls, rights = (sorted(Collectives("").seen(each)[0]) for each in (trial, right))
        many = {mine / its for (_, mine), (_, its) in zip(calls, rights) if its}
        if [name for name, _ in calls] == [name for name, _ in rights] and many <= {0.5, 1, 2} and many != {1}:
            dtype = trial.case.arguments(0)[0].dtype
            wrong = {name for (name, mine), (_, its) in zip(calls, rights) if mine != its}
            return {
                2: f"{' and '.join(sorted(wrong))}: as often as is right, with {'half' if 0.5 in many else 'twice'} "
                f"the bytes. Take the dtype of `shard`, which is {str(dtype).removeprefix('torch.')} here"
            }
        return super().mistaken(exercise, trial, right, earlier)


@exercise(
    title="Gather and free a layer (stage 3)",
    minutes=30,
    difficulty=4,
    test_cases=test_cases,
    program=train,
    targets=[
        *BY_HAND,
        Values(
            f"output and gradients as of the whole weight, a chain of layers, {STEPS} steps; 1, 2, 3 and 4 ranks",
            scratch=True,
            explain=[twice],
        ),
        Held(
            "freed",
            "after forward, activations and no whole weight; one is granted",
            noted="forward",
            what="more after forward than before it",
            slack=LAYER,
            advice="What is kept for backward? Save x and the shard, and not the weight, which autograd saves, too, if "
            "it computes with it",
        ),
        Held(
            "peak",
            "shards, their gradients, one layer's weight and its gradient; two layers more are granted",
            slack=2 * LAYER,
            advice=f"In backward, too, a weight must go when its layer is done. {VIEW}",
        ),
        SentAsItIs("3(p-1)/p of the weights a step: two all-gathers and a reduce-scatter"),
    ],
    mistakes=[
        mistake(
            "This is what the own shard gives, with zeros for the others': the weight was not gathered",
            IN_FORWARD,
            "x @ with_zeros(shard).T",
            CLASS,
            WITH_ZEROS + CLASS,
        ),
        mistake(
            "This is what the weight gave in an earlier step: it has changed since, and a step must gather anew",
            IN_FORWARD,
            "x @ whole.T",
            IN_BACKWARD,
            "grad @ whole",
            CLASS,
            KEPT + CLASS,
        ),
        mistake(
            "The gradient of x has gone through the own shard, with zeros for the others': gather before backward, too",
            IN_BACKWARD,
            "grad @ with_zeros(shard)",
            CLASS,
            WITH_ZEROS + CLASS,
        ),
        mistake(
            "The gradient of x has gone through the last layer's weight, which was left from forward: gather this "
            "layer's own before backward",
            "            return x @ gather(shard).T",
            "            last[dist.get_rank()] = gather(shard)\n            return x @ last[dist.get_rank()].T",
            IN_BACKWARD,
            "grad @ last[dist.get_rank()]",
            CLASS,
            "    last = sharded_linear.__dict__\n\n" + CLASS,
        ),
        mistake(
            "x belongs to this rank's loss: its gradient is neither averaged over the ranks nor divided by p",
            "of_x = grad @ gather(shard)",
            "of_x = grad @ gather(shard) / p",
        ),
        mistake(
            "The gradient of W is that of this step alone: return it from backward, and autograd adds it to shard.grad",
            CLASS,
            "    shard.grad = None\n\n" + CLASS,
        ),
        mistake(
            "The gradient of W is that of the rank's own loss alone: nothing was added up over the ranks",
            REDUCED,
            "of_shard = (grad.T @ x).flatten().chunk(p)[dist.get_rank()]",
            "of_shard / p",
            "of_shard",
        ),
        mistake(
            "Weights are kept whole for backward. Save x and the shard, and not the weight",
            "            ctx.save_for_backward(x, shard)\n            return x @ gather(shard).T",
            "            weight = gather(shard)\n            ctx.save_for_backward(x, shard, weight)\n"
            "            return x @ weight.T",
            "x, shard = ctx.saved_tensors",
            "x, shard, weight = ctx.saved_tensors",
            IN_BACKWARD,
            "grad @ weight",
        ),
    ],
    hints=[
        "What ctx.save_for_backward keeps stays in memory until backward. Which tensors does backward need that it "
        "cannot have in another way, and which can it gather again?",
        "Write gather() once: an empty row of p times the shard, dist.all_gather_single(row, shard), "
        "row.view(rows, -1). forward and backward both call it; a local variable is freed when they return.",
        "With y = x W^T: the gradient of x is grad @ W, that of W is grad^T @ x, of W's shape. Of the latter the rank "
        "needs its own part of the mean: reduce-scatter it, flat.",
        "backward returns one gradient for each argument of forward: (of_x, of_shard), the second as flat as the "
        "shard. Save with ctx.save_for_backward(x, shard).",
    ],
    why="This is FSDP: model states take 16/p bytes a parameter, however large the model, and the price is one "
    "all-gather more, half again as many bytes as DDP sends. Keeping the weights from forward to backward "
    "(reshard_after_forward=False) pays no such price, and saves no memory at the peak.",
)
def sharded_linear(x, shard, rows):
    """Return x W^T, where each rank has only its shard of W, and W is whole only while it is used. x and W are float32,
    and float64 in one world: take the dtype of ``shard``.

    ``shard`` is this rank's part of W [rows, columns], flat; p divides it. Then ``shard.grad`` is this rank's part of
    the mean over the ranks of W's gradient, added to what it was, as autograd does; and x has the gradient of its own
    rank's loss. The shards change between steps.
    """
    p = dist.get_world_size()

    # -
    def gather(shard):
        row = shard.new_empty(p * shard.numel())
        dist.all_gather_single(row, shard)
        return row.view(rows, -1)

    # .
    class Linear(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x, shard):
            # ? Gather W and use it. What must be saved for backward?
            ctx.save_for_backward(x, shard)
            return x @ gather(shard).T

        @staticmethod
        def backward(ctx, grad):
            # ? W again. The gradient of x, and this rank's part of the mean gradient of W.
            x, shard = ctx.saved_tensors
            of_x = grad @ gather(shard)
            of_shard = torch.empty_like(shard)
            dist.reduce_scatter_single(of_shard, (grad.T @ x).flatten())
            return of_x, of_shard / p

    return Linear.apply(x, shard)
