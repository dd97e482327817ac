"""Wrong answers to the exercises of 06_zero: each with the property that rejects it, and what it is told."""

import importlib
from collections import defaultdict
from operator import add

import torch
import torch.distributed as dist
import torch.nn.functional as F
from lab.registered import collection

WRONG_ANSWERS, wrong = collection()


def average(tensor):
    """Reduce-scatter: this rank's part of the mean."""
    p = dist.get_world_size()
    part = tensor.new_empty(tensor.numel() // p)
    dist.reduce_scatter_single(part, tensor.flatten())
    return part / p


def gathered(part):
    row = part.new_empty(part.numel() * dist.get_world_size())
    dist.all_gather_single(row, part.detach())
    return row


# sharded_adam


def padded(tensor):
    return F.pad(tensor, (0, -len(tensor) % dist.get_world_size()))


def own(tensor, shift=0):
    p = dist.get_world_size()
    return padded(tensor).chunk(p)[(dist.get_rank() + shift) % p].clone()


def training(weights, adam, shard=None, mean=average, publish=gathered, anew=False):
    """The solution, in parts."""
    shard = own(weights) if shard is None else shard
    optimizer = adam([shard])

    def step(gradient):
        nonlocal optimizer
        optimizer = adam([shard]) if anew else optimizer
        shard.grad = mean(padded(gradient))
        optimizer.step()
        weights.copy_(publish(shard)[: len(weights)])

    return step


@wrong(
    "sharded_adam",
    "values",
    "nobody sent anything. Ranks of a real cluster share no memory: whatever one knows of another",
)
def does_nothing(weights, adam):
    return lambda gradient: None


@wrong("sharded_adam", "runs", "it returned None, where it should return the function step")
def returns_nothing(weights, adam):
    training(weights, adam)


@wrong("sharded_adam", "states", "a plain optimizer on every rank, and nothing is sharded")
def plain_optimizer_on_every_rank(weights, adam):
    optimizer = adam([weights])

    def step(gradient):
        mean = gradient.clone()
        dist.all_reduce(mean)
        weights.grad = mean / dist.get_world_size()
        optimizer.step()
        weights.grad = None

    return step


@wrong(
    "sharded_adam",
    "bytes",
    "An all-reduce brings the whole sum to every rank, and each needs its shard alone",
)
def all_reduces_and_takes_its_part(weights, adam):
    def mean(gradient):
        gradient = gradient.clone()
        dist.all_reduce(gradient)
        return own(gradient) / dist.get_world_size()

    return training(weights, adam, mean=mean)


@wrong(
    "sharded_adam",
    "values",
    "A rank's shard of the weights took its step with the gradient of another part, or stands in",
)
def wrong_ranks_shard(weights, adam):
    return training(weights, adam, shard=own(weights, 1))


@wrong(
    "sharded_adam",
    "values",
    "The last numbers, which do not divide by the number of ranks, never change: pad before you cut.",
)
def forgets_the_rest(weights, adam):
    cut = len(weights) - len(weights) % dist.get_world_size()
    optimize = training(weights[:cut], adam)
    return lambda gradient: optimize(gradient[:cut])


@wrong("sharded_adam", "runs", "input needs 2 ranks x 46 = 92 elements")
def forgets_to_pad(weights, adam):
    p, rank = dist.get_world_size(), dist.get_rank()
    shard = weights.chunk(p)[rank].clone()
    optimizer = adam([shard])

    def step(gradient):
        shard.grad = torch.empty_like(shard)
        dist.reduce_scatter_single(shard.grad, gradient)
        shard.grad /= p
        optimizer.step()
        dist.all_gather_single(weights, shard)

    return step


@wrong("sharded_adam", "values", "added up over the ranks, and not averaged")
def summed_and_not_averaged(weights, adam):
    return training(weights, adam, mean=lambda gradient: average(gradient) * dist.get_world_size())


@wrong("sharded_adam", "values", "an all-gather is missing, and the ranks drift apart")
def ranks_drift_apart(weights, adam):
    rank = dist.get_rank()

    def publish(shard):
        mine = padded(weights).clone()
        mine[rank * len(shard) : rank * len(shard) + len(shard)] = shard
        return mine

    return training(weights, adam, publish=publish)


@wrong("sharded_adam", "values", "a new optimizer in each step makes: it has forgotten its moments")
def new_optimizer_in_each_step(weights, adam):
    return training(weights, adam, anew=True)


@wrong("sharded_adam", "values", "Each shard took its step with its own rank's gradient: nothing was added up.")
def nothing_is_reduced(weights, adam):
    return training(weights, adam, mean=own)


@wrong(
    "sharded_adam",
    "values",
    "Gradients of earlier steps are added to those of this one: put the new one in the place of",
)
def gradients_pile_up(weights, adam):
    so_far = []

    def mean(gradient):
        so_far.append(average(gradient))
        return sum(so_far)

    return training(weights, adam, mean=mean)


@wrong("sharded_adam", "memory", "The shard is a view (chunk, split) of a padded copy, and keeps all of it: clone it.")
def shard_is_a_view(weights, adam):
    p = dist.get_world_size()
    return training(weights, adam, shard=padded(weights).clone().chunk(p)[dist.get_rank()])


@wrong("sharded_adam", "memory", "A padded gradient kept after step is 4n bytes")
def keeps_the_gradient(weights, adam):
    last = []

    def mean(gradient):
        last[:] = [gradient]
        return average(gradient)

    return training(weights, adam, mean=mean)


@wrong("sharded_adam", "bytes", "One reduce for each rank is a reduce-scatter")
def reduces_for_each_rank(weights, adam):
    def mean(gradient):
        p = dist.get_world_size()
        parts = [part.clone() for part in gradient.chunk(p)]
        for rank, part in enumerate(parts):
            dist.reduce(part, rank)
        return parts[dist.get_rank()] / p

    return training(weights, adam, mean=mean)


@wrong("sharded_adam", "own work", "you call tinydist.zero, where this is solved")
def librarys_own(weights, adam):
    module = torch.nn.Linear(len(weights), 1, bias=False)
    module.weight.data = weights.view(1, -1)
    stage = importlib.import_module("tinydist." + "zero").OptimizerStates(module, torch.optim.Adam, lr=0.1, eps=0.1)

    def step(gradient):
        module.weight.grad = gradient.view(1, -1)
        stage.step()
        weights.copy_(module.weight.data.flatten())

    return step


EVERYBODYS = defaultdict(list)  # (ranks, rank) -> what it has written, for all to read: ranks of a check are threads


def all_told(tensor, wait):
    """Every rank's ``tensor``, through a global variable, which no ledger sees; ``wait()`` is the barrier."""
    p, rank = dist.get_world_size(), dist.get_rank()
    EVERYBODYS[p, rank].append(tensor.detach().flatten().tolist())
    number = len(EVERYBODYS[p, rank]) - 1
    wait()
    return [EVERYBODYS[p, other][number] for other in range(p)]


def total_told(gradient):
    """The own part of the mean, and a reduce-scatter of zeros."""
    p, rank = dist.get_world_size(), dist.get_rank()
    k = gradient.numel() // p
    everybodys = all_told(gradient, lambda: average(gradient.zero_()))
    return gradient.new_tensor([each[rank * k : rank * k + k] for each in everybodys]).mean(0)


@wrong(
    "sharded_adam", "heard", "the results do not follow what is sent: they do not come from that alone. Ranks of a real"
)
def through_a_global_variable(weights, adam):
    return training(weights, adam, mean=total_told)


@wrong("sharded_adam", "waits", "rank 0 does not wait for 1 collective")
def asks_and_goes_on(weights, adam):
    dist.all_reduce(torch.zeros(1), async_op=True)
    return training(weights, adam)


# shard_gradients


def freeing(layers, mean=average, free=True, forget=True, order=1, late=False, dtype=torch.float32, add=add):
    """The solution, in parts."""
    mine = {}

    def take(parameter):
        part = mean(parameter.grad.to(dtype)).float()
        mine[parameter] = add(mine[parameter], part) if parameter in mine else part
        if free:
            parameter.grad = None

    def collect():
        if late:
            for parameter in layers:
                take(parameter)
        found = [mine[parameter] for parameter in layers[::order]]
        if forget:
            mine.clear()
        return found

    for parameter in layers:
        if not late:
            parameter.register_post_accumulate_grad_hook(take)
    return collect


@wrong("shard_gradients", "runs", "it returned None, where it should return the function collect")
def no_collect(layers):
    freeing(layers)


@wrong("shard_gradients", "values", "on rank 0 the gradient of layer 0 in step 0 has shape [60], where [30] is right")
def whole_gradients(layers):
    return lambda: [parameter.grad.flatten() for parameter in layers]


@wrong(
    "shard_gradients",
    "values",
    "All layers still have their .grad when backward has ended: reduce it and set it to None in the",
)
def all_after_backward(layers):
    return freeing(layers, late=True)


@wrong(
    "shard_gradients",
    "values",
    "These are the gradients of all passes so far: old ones are still there when backward adds.",
)
def never_freed(layers):
    return freeing(layers, free=False)


@wrong(
    "shard_gradients",
    "peak",
    "A view (chunk, split) keeps all memory of the tensor that it is a part of: clone the part",
)
def parts_are_views(layers):
    def mean(gradient):
        gradient = gathered(average(gradient))
        return gradient.chunk(dist.get_world_size())[dist.get_rank()]

    return freeing(layers, mean)


@wrong(
    "shard_gradients",
    "bytes",
    "An all-reduce brings the whole sum to every rank, and each needs its shard alone",
)
def all_reduces_each(layers):
    def mean(gradient):
        dist.all_reduce(gradient)
        return (gradient.flatten().chunk(dist.get_world_size())[dist.get_rank()] / dist.get_world_size()).clone()

    return freeing(layers, mean)


@wrong("shard_gradients", "values", "This is the sum over the ranks, and not the mean.")
def sums_gradients(layers):
    return freeing(layers, lambda gradient: average(gradient) * dist.get_world_size())


@wrong(
    "shard_gradients",
    "values",
    "nobody sent anything. Ranks of a real cluster share no memory: whatever one knows of another",
)
def own_gradients(layers):
    return freeing(layers, lambda gradient: own(gradient.flatten()))


@wrong("shard_gradients", "values", "A rank has the mean gradient of another rank's shard, and not of its own.")
def neighbors_part(layers):
    def mean(gradient):
        parts = gradient.flatten().chunk(dist.get_world_size())
        return average(torch.cat([*parts[1:], parts[0]]))

    return freeing(layers, mean)


@wrong("shard_gradients", "values", "in the order of backward: sort them as layers are")
def in_the_order_of_backward(layers):
    return freeing(layers, order=-1)


@wrong(
    "shard_gradients",
    "values",
    "old ones are still there when backward adds. Where is .grad set to None, and the own part begun anew?",
)
def never_clears(layers):
    return freeing(layers, forget=False)


@wrong(
    "shard_gradients",
    "kept",
    "The shards that collect has handed out are still there: forget them, with mine.clear() or",
)
def buffers_made_once(layers):
    p = dist.get_world_size()
    mine = {parameter: torch.zeros(parameter.numel() // p) for parameter in layers}

    def take(parameter):
        mine[parameter] += average(parameter.grad.float())
        parameter.grad = None

    def collect():
        found = [mine[parameter].clone() for parameter in layers]
        for part in mine.values():
            part.zero_()
        return found

    for parameter in layers:
        parameter.register_post_accumulate_grad_hook(take)
    return collect


@wrong("shard_gradients", "values", "on rank 0 the gradient of layer 0 in step 0 has shape [5, 6], where [30] is right")
def parts_are_rows(layers):
    return freeing(layers, lambda gradient: average(gradient).view(-1, gradient.shape[1]))


@wrong(
    "shard_gradients",
    "peak",
    "numbers are kept outside of tensors, in lists, bytes or NumPy's arrays: these take memory,",
)
def whole_gradients_in_numpy(layers):
    kept = {}

    def take(parameter):
        kept[parameter] = kept.get(parameter, 0) + parameter.grad.float().numpy()
        parameter.grad = None

    for parameter in layers:
        parameter.register_post_accumulate_grad_hook(take)
    return lambda: [average(torch.from_numpy(kept.pop(parameter))) for parameter in layers]


@wrong("shard_gradients", "peak", "A collective that is not waited for keeps its input: wait in the hook")
def waits_in_collect(layers):
    p, mine = dist.get_world_size(), {}

    def take(parameter):
        part = torch.empty(parameter.numel() // p)
        work = dist.reduce_scatter_single(part, parameter.grad.float().flatten(), async_op=True)
        mine.setdefault(parameter, []).append((part, work))
        parameter.grad = None

    def collect():
        found = []
        for parameter in layers:
            parts = []
            for part, work in mine.pop(parameter):
                work.wait()
                parts.append(part / p)
            found.append(sum(parts))
        return found

    for parameter in layers:
        parameter.register_post_accumulate_grad_hook(take)
    return collect


@wrong(
    "shard_gradients",
    "peak",
    "numbers are kept outside of tensors, in lists, bytes or NumPy's arrays: these take memory,",
)
def gradients_through_a_global_variable(layers):
    return freeing(layers, total_told)


@wrong("shard_gradients", "values", "These are the gradients of the last microbatch alone: add the own parts up until")
def last_microbatch_alone(layers):
    return freeing(layers, add=lambda before, part: part)


@wrong("shard_gradients", "values", "The ranks' gradients are added up in the 16 bits in which backward has made them")
def reduces_in_16_bits(layers):
    return freeing(layers, dtype=layers[0].dtype)


@wrong("shard_gradients", "values", "are they sent, or added, in a smaller dtype?")
def adds_microbatches_in_16_bits(layers):
    return freeing(layers, add=lambda before, part: (before + part).to(layers[0].dtype).float())


@wrong("shard_gradients", "values", "These are the gradients of the last microbatch alone: add the own parts up until")
def as_in_the_notebook(layers):
    """Its hook, pasted: 16 bits stay 16 bits, and each microbatch takes the place of the one before."""
    mine = {}

    def gradient_is_there(parameter):
        parameter.grad /= dist.get_world_size()
        mean = parameter.grad.new_empty(parameter.numel() // dist.get_world_size())
        dist.reduce_scatter_single(mean, parameter.grad.flatten())
        mine[parameter] = mean
        parameter.grad = None

    for parameter in layers:
        parameter.register_post_accumulate_grad_hook(gradient_is_there)
    return lambda: [mine.pop(parameter) for parameter in layers]


@wrong("shard_gradients", "waits", "does not wait for 1 collective")
def a_collective_that_nobody_waits_for(layers):
    dist.all_reduce(torch.zeros(1), async_op=True)
    return freeing(layers)


# sharded_linear


def linear(x, shard, rows, keep=(), reduce=average, whole=gathered, again=gathered, of_x=lambda grad: grad, give=tuple):
    """The solution, in parts. ``keep``: ("saved",) for a weight that autograd keeps."""

    class Linear(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x, shard):
            weight = whole(shard).view(rows, -1)
            ctx.save_for_backward(x, shard, *([weight] if "saved" in keep else []))
            return x @ weight.T

        @staticmethod
        def backward(ctx, grad):
            x, shard, *saved = ctx.saved_tensors
            weight = saved[0] if saved else again(shard).view(rows, -1)
            return give((of_x(grad @ weight), reduce(grad.T @ x)))

    return Linear.apply(x, shard)


@wrong("sharded_linear", "runs", "on rank 0 layer 0 returned NoneType, where a tensor of shape [1, 6] is right")
def returns_no_output(x, shard, rows):
    pass


@wrong("sharded_linear", "runs", "shape")
def own_shard_alone(x, shard, rows):
    return x @ shard.view(-1, 24).T


@wrong("sharded_linear", "runs", "the shard of layer 0 has no gradient: the way from the output to it is cut")
def no_function_of_its_own(x, shard, rows):
    return x @ gathered(shard).view(rows, -1).T


@wrong("sharded_linear", "runs", "x has no gradient: the way from the output to it is cut")
def no_gradient_of_x(x, shard, rows):
    return linear(x, shard, rows, of_x=lambda grad: None)


@wrong("sharded_linear", "freed", "Weights are kept whole for backward. Save x and the shard, and not the weight.")
def weight_saved_by_autograd(x, shard, rows):
    return linear(x, shard, rows, keep=("saved",))


@wrong(
    "sharded_linear",
    "values",
    "This is what the weight gave in an earlier step: it has changed since, and a step must gather",
)
def gathered_once(x, shard, rows):
    kept = shard.__dict__.setdefault("kept", {})

    def once(shard_again):
        if "weight" not in kept:
            kept["weight"] = gathered(shard)
        return kept["weight"]

    return linear(x, shard, rows, whole=once, again=once)


@wrong(
    "sharded_linear",
    "bytes",
    "An all-reduce brings the whole sum to every rank, and each needs its shard alone",
)
def gradient_all_reduced(x, shard, rows):
    def reduce(gradient):
        dist.all_reduce(gradient)
        return own(gradient.flatten()) / dist.get_world_size()

    return linear(x, shard, rows, reduce=reduce)


def with_zeros(shard):
    p, rank = dist.get_world_size(), dist.get_rank()
    row = torch.zeros(p * shard.numel())
    row[rank * shard.numel() :][: shard.numel()] = shard
    return row


@wrong(
    "sharded_linear",
    "values",
    "This is what the own shard gives, with zeros for the others': the weight was not gathered.",
)
def never_gathers(x, shard, rows):
    return linear(x, shard, rows, whole=with_zeros)


@wrong(
    "sharded_linear",
    "values",
    "The gradient of x has gone through the own shard, with zeros for the others': gather before",
)
def empty_weight_in_backward(x, shard, rows):
    return linear(x, shard, rows, again=with_zeros)


LAST = {}


@wrong(
    "sharded_linear",
    "values",
    "The gradient of x has gone through the last layer's weight, which was left from forward:",
)
def stale_weight_in_backward(x, shard, rows):
    def whole(shard):
        LAST[dist.get_rank()] = gathered(shard)
        return LAST[dist.get_rank()]

    return linear(x, shard, rows, whole=whole, again=lambda shard: LAST[dist.get_rank()])


@wrong("sharded_linear", "values", "This is the sum over the ranks, and not the mean.")
def weights_gradient_summed(x, shard, rows):
    return linear(x, shard, rows, reduce=lambda gradient: average(gradient) * dist.get_world_size())


@wrong("sharded_linear", "values", "of this step alone: return it from backward, and autograd adds it to shard.grad")
def sets_the_gradient_itself(x, shard, rows):
    def give(gradients):
        of_x, shard.grad = gradients
        return of_x, None

    return linear(x, shard, rows, give=give)


@wrong("sharded_linear", "runs", "rank 0, in backward, called by autograd")
def gradients_swapped(x, shard, rows):
    return linear(x, shard, rows, give=lambda gradients: gradients[::-1])


@wrong("sharded_linear", "values", "x belongs to this rank's loss: its gradient is not averaged")
def gradient_of_x_averaged(x, shard, rows):
    def of_x(grad):
        dist.all_reduce(grad)
        return grad / dist.get_world_size()

    return linear(x, shard, rows, of_x=of_x)


@wrong("sharded_linear", "values", "is W's gradient transposed")
def gradient_transposed(x, shard, rows):
    return linear(x, shard, rows, reduce=lambda gradient: average(gradient.T))


@wrong("sharded_linear", "values", "The row is W [rows, columns]: view(rows, -1)")
def row_by_columns(x, shard, rows):
    def whole(shard):
        return gathered(shard).view(-1, rows).T.flatten()

    return linear(x, shard, rows, whole=whole, again=whole)


@wrong("sharded_linear", "peak", "In backward, too, a weight must go when its layer is done")
def kept_in_backward(x, shard, rows):
    kept = x.__dict__.setdefault("kept", [])

    def again(shard):
        kept.append(gathered(shard))
        return kept[-1]

    y = linear(x, shard, rows, again=again)
    y.kept = kept
    return y


@wrong(
    "sharded_linear",
    "waits",
    "rank 0 does not wait for 6 collectives: call wait() on what a call with async_op=True returns,",
)
def gathers_and_goes_on(x, shard, rows):
    dist.all_reduce(torch.zeros(1), async_op=True)
    return linear(x, shard, rows)


@wrong("sharded_linear", "own work", "you call tinydist.zero, where this is solved")
def librarys_stage_3(x, shard, rows):
    from tinydist.zero.shards import as_precise

    as_precise(shard)
    return linear(x, shard, rows)


@wrong(
    "sharded_linear",
    "peak",
    "numbers are kept outside of tensors, in lists, bytes or NumPy's arrays: these take memory,",
)
def weights_through_a_global_variable(x, shard, rows):
    def whole(shard):
        return shard.new_tensor(all_told(shard, lambda: gathered(torch.zeros_like(shard)))).flatten()

    return linear(x, shard, rows, whole=whole)


# mended_fsdp


def fsdp(checkpoint, batches, max_norm, cut=None, owner=lambda r, p: r, stale=False, square=None, **options):
    """The solution, with mistakes."""
    p, rank = dist.get_world_size(), dist.get_rank()
    cut = cut or (lambda whole, number: whole.flatten().chunk(p)[number].clone())
    reduce, keep, scale = (options.get(name) for name in ("reduce", "keep", "scale"))

    def gather(shard):
        return gathered(shard).view(checkpoint.width, checkpoint.width)

    shards = [cut(checkpoint.weight(layer), rank) for layer in range(checkpoint.layers)]
    momenta = [cut(checkpoint.momentum(layer), owner(rank, p)).clone() for layer in range(checkpoint.layers)]
    for inputs, targets in batches:
        y, saved, gradients, pile = inputs, [], [], []
        for shard in shards:
            x, weight = y, gather(shard)
            y = torch.tanh(x @ weight)
            saved.append((x, y, weight if keep else None))
        grad = 2 * (y - targets) / y.numel()
        for (x, y, kept), shard in zip(reversed(saved), reversed(shards)):
            grad = grad * (1 - y * y)
            gradients.insert(0, (reduce or average)(x.T @ grad))
            if not stale:
                weight = kept if keep else gather(shard)
            grad = grad @ weight.T
            pile.append(weight if options.get("pile") else None)
        squares = [gradient.square().sum() for gradient in gradients]
        totals = [(square or everybodys)(each) for each in (squares if options.get("by_layer") else [sum(squares)])]
        factors = [(scale or clamped)(max_norm, total.sqrt()) for total in totals]
        for shard, momentum, gradient, factor in zip(
            shards, momenta, gradients, factors * (len(shards) // len(factors))
        ):
            momentum.mul_(0.9).add_(gradient * factor)
            shard.sub_(momentum, alpha=0.1)
        del x, y, kept, saved, weight, grad, pile
    return shards


def everybodys(square):
    dist.all_reduce(square)
    return square


def clamped(max_norm, norm):
    return (max_norm / norm).clamp(max=1.0)


def view(whole, number):
    return whole.flatten().chunk(dist.get_world_size())[number]


@wrong(
    "mended_fsdp",
    "sharded",
    "The shards of the weights are views, and keep all of them alive: this is replication posing as",
)
def shards_are_views(checkpoint, batches, max_norm):
    return fsdp(checkpoint, batches, max_norm, cut=view)


@wrong("mended_fsdp", "values", "the last layer's: each layer's own weight was freed, and must be gathered again")
def gather_missing_before_backward(checkpoint, batches, max_norm):
    return fsdp(checkpoint, batches, max_norm, stale=True)


@wrong(
    "mended_fsdp",
    "values",
    "Ranks take each other's part of the momentum (-rank is rank on 1 and on 2 ranks alone): cut",
)
def state_of_the_wrong_rank(checkpoint, batches, max_norm):
    return fsdp(checkpoint, batches, max_norm, owner=lambda r, p: -r % p)


@wrong(
    "mended_fsdp",
    "values",
    "Each rank clips by the norm of its own shards: a step then has another length on each. The",
)
def clips_by_the_local_norm(checkpoint, batches, max_norm):
    return fsdp(checkpoint, batches, max_norm, square=lambda square: square)


@wrong("mended_fsdp", "values", "Each layer is clipped by its own norm: the norm is that of all layers together.")
def clips_each_layer(checkpoint, batches, max_norm):
    return fsdp(checkpoint, batches, max_norm, by_layer=True)


@wrong("mended_fsdp", "values", "This gradient is shorter than max_norm: leave it as it is.")
def always_scales(checkpoint, batches, max_norm):
    return fsdp(
        checkpoint, batches, max_norm, scale=lambda most, norm: clamped(most, norm) if most > 1e9 else most / norm
    )


@wrong("mended_fsdp", "bytes", "A weight is gathered once, and kept until backward")
def kept_from_forward_for_backward(checkpoint, batches, max_norm):
    return fsdp(checkpoint, batches, max_norm, keep=True)


@wrong(
    "mended_fsdp",
    "bytes",
    "An all-reduce brings the whole sum to every rank, and each needs its shard alone",
)
def all_reduces_gradients(checkpoint, batches, max_norm):
    def reduce(gradient):
        dist.all_reduce(gradient)
        return view(gradient, dist.get_rank()).clone() / dist.get_world_size()

    return fsdp(checkpoint, batches, max_norm, reduce=reduce)


@wrong("mended_fsdp", "sharded", "this is replication posing as FSDP")
def every_rank_has_all(checkpoint, batches, max_norm):
    """And steps on all; it returns its part, which is right."""
    p, rank = dist.get_world_size(), dist.get_rank()
    weights = [checkpoint.weight(layer) for layer in range(checkpoint.layers)]
    momenta = [checkpoint.momentum(layer) for layer in range(checkpoint.layers)]
    for inputs, targets in batches:
        leaves = [weight.requires_grad_() for weight in weights]
        x = inputs
        for weight in leaves:
            x = torch.tanh(x @ weight)
        (x - targets).square().mean().backward()
        with torch.no_grad():
            for weight in weights:
                dist.all_reduce(weight.grad)
                weight.grad /= p
            square = sum(weight.grad.square().sum() for weight in weights)
            for weight, momentum in zip(weights, momenta):
                momentum.mul_(0.9).add_(weight.grad * clamped(max_norm, square.sqrt()))
                weight.sub_(momentum, alpha=0.1)
                weight.grad = None
    return [weight.detach().flatten().chunk(p)[rank] for weight in weights]


@wrong("mended_fsdp", "peak", "numbers are kept outside of tensors")
def trains_by_a_global_variable(checkpoint, batches, max_norm):
    return fsdp(checkpoint, batches, max_norm, reduce=total_told)


@wrong("mended_fsdp", "runs", "rank 0 returned a NoneType, where a list of 4 shards is right")
def trains_nothing(checkpoint, batches, max_norm):
    pass


@wrong(
    "mended_fsdp",
    "peak",
    "All that is whole must go when its layer is done",
)
def weights_live_until_the_step_ends(checkpoint, batches, max_norm):
    return fsdp(checkpoint, batches, max_norm, pile=True)


@wrong("mended_fsdp", "waits", "does not wait for 1 collective")
def a_norm_that_nobody_waits_for(checkpoint, batches, max_norm):
    dist.all_reduce(torch.zeros(1), async_op=True)
    return fsdp(checkpoint, batches, max_norm)


@wrong("mended_fsdp", "own work", "you call tinydist.zero, where this is solved")
def librarys_shards(checkpoint, batches, max_norm):
    from tinydist.zero.shards import as_precise

    return fsdp(checkpoint, batches, max_norm, cut=lambda whole, r: view(as_precise(whole), r).clone())


# cheapest_stage


def plan(parameters, ranks, device_gb, activations_gb, microbatches, gigabits, **wrong):
    """The solution, with mistakes: by name, what is used in the place of the right thing."""
    p, m = ranks, microbatches
    giga = wrong.get("giga", 1e9)
    plans = []
    for stage in wrong.get("stages", range(4)):
        weights = 2 / (p if stage >= 3 else 1)
        gradients = wrong.get("gradient", 2) / (p if stage >= wrong.get("gradients_from", 2) else 1)
        states = wrong.get("states", 12) / (p if stage >= 1 else 1)
        held = (
            parameters * (weights + gradients + states)
            + wrong.get("activations", lambda gb, p: gb)(activations_gb, p) * 1e9
        )
        if "held" in wrong:
            held = wrong["held"](parameters, p)
        collectives = wrong.get("collectives", lambda m: (2, 2, m + 1, 3 * m))(m)[stage]
        sent = collectives * wrong.get("part", lambda p: (p - 1) / p)(p) * wrong.get("size", 2) * parameters
        seconds = wrong.get("bits", 8) * sent / (gigabits * wrong.get("gigabit", 1e9))
        plans.append({"stage": stage, "held": held, "sent": sent, "seconds": seconds})
    fitting = [
        plan for plan in plans if plan["held"] <= wrong.get("room", 1) * device_gb * giga or wrong.get("all_fit")
    ]
    return min(fitting, key=wrong.get("key", lambda plan: (plan["sent"], plan["held"], plan["stage"])), default=None)


@wrong("cheapest_stage", "choice", "A GB has 10^9 bytes, and a GiB 2^30")
def gib_for_gb(*setting):
    return plan(*setting, giga=2**30)


@wrong(
    "cheapest_stage",
    "held, sent, seconds",
    "Gradients or weights count 4 bytes here, as of fp32. Both have 16 bits; the fp32 copies of the",
)
def gradients_in_fp32(*setting):
    return plan(*setting, gradient=4)


@wrong(
    "cheapest_stage",
    "held, sent, seconds",
    "Gradients or weights are sharded here as the states are: stage 1 shards states alone, stage 2",
)
def gradients_sharded_from_stage_1(*setting):
    return plan(*setting, gradients_from=1)


@wrong("cheapest_stage", "held, sent, seconds", "The optimizer's states count 8 bytes here: two moments")
def no_master_weights(*setting):
    return plan(*setting, states=8)


@wrong("cheapest_stage", "held, sent, seconds", "Activations are missing")
def no_activations(*setting):
    return plan(*setting, activations=lambda gb, p: 0)


@wrong("cheapest_stage", "held, sent, seconds", "Activations are not sharded: each rank has those of its own batch")
def activations_sharded(*setting):
    return plan(*setting, activations=lambda gb, p: gb / p)


@wrong(
    "cheapest_stage",
    "held, sent, seconds",
    "All is sharded here, 16/p bytes, as in stage 3 alone: stage 0 shards nothing.",
)
def sixteen_over_p_for_all(*setting):
    return plan(*setting, held=lambda parameters, p: 16 * parameters / p + setting[3] * 1e9)


@wrong("cheapest_stage", "choice", "another one that fits sends less")
def stage_3_always(*setting):
    return plan(*setting, stages=[3])


@wrong("cheapest_stage", "choice", "sends less, with 4 microbatches a step")
def holds_least_of_the_replicated(*setting):
    """Stage 2 before 1 before 0, and 3 if none fits, whatever they send."""
    return plan(*setting, key=lambda plan: (plan["stage"] == 3, -plan["stage"] if setting[1] > 1 else plan["stage"]))


@wrong(
    "cheapest_stage",
    "held, sent, seconds",
    "This is a step of one microbatch. Each reduces its gradients in stages 2 and 3, and in stage 3",
)
def microbatches_forgotten(*setting):
    return plan(*setting, collectives=lambda m: (2, 2, 2, 3))


@wrong("cheapest_stage", "held, sent, seconds", "does not send the part that is a rank's own: (p-1)/p")
def no_own_part(*setting):
    return plan(*setting, part=lambda p: 1 if p > 1 else 0)


@wrong("cheapest_stage", "held, sent, seconds", "Weights and gradients have 2 bytes a number, and this counts 4")
def sends_fp32(*setting):
    return plan(*setting, size=4)


@wrong("cheapest_stage", "held, sent, seconds", "A byte has 8 bits.")
def bytes_for_bits(*setting):
    return plan(*setting, bits=1)


@wrong("cheapest_stage", "held, sent, seconds", "A Gbit has 10^9 bits, not 2^30.")
def binary_gigabits(*setting):
    return plan(*setting, gigabit=2**30)


@wrong("cheapest_stage", "choice", "It holds all that a device has, and not more: it fits")
def less_than_the_device(*setting):
    return plan(*setting, room=1 - 1e-12)


@wrong("cheapest_stage", "choice", "it does not fit")
def never_looks_whether_it_fits(*setting):
    return plan(*setting, all_fit=True)


@wrong("cheapest_stage", "choice", "another one that fits sends as much and holds less")
def lowest_of_those_that_send_least(*setting):
    return plan(*setting, key=lambda plan: (plan["sent"], plan["stage"]))


@wrong("cheapest_stage", "held, sent, seconds", "it returned 3, where")
def names_the_stage_alone(*setting):
    return 3


@wrong("cheapest_stage", "choice", "there is one. Which stage holds least?")
def nothing_fits(*setting):
    return None


@wrong(
    "cheapest_stage",
    "held, sent, seconds",
    "This is a step of one microbatch. Each reduces its gradients in stages 2 and 3, and in stage 3",
)
def hard_coded(*setting):
    return {"stage": 3, "held": 28e9, "sent": 68.25e9, "seconds": 2.73}


@wrong("cheapest_stage", "runs", "ZeroDivisionError")
def divides_by_the_other_ranks(*setting):
    return plan(*setting, part=lambda p: 1 / (p / (p - 1)))


@wrong("cheapest_stage", "own work", "you call tinydist.zero, where this is solved")
def estimators_of_the_library(*setting):
    from tinydist.zero.estimators import model_states

    found = plan(*setting)
    return found and found | {"held": model_states(setting[0], found["stage"], setting[1]) + setting[3] * 1e9}


@wrong(
    "cheapest_stage",
    "held, sent, seconds",
    "without activations 10.001 a parameter. Which of weights (2), gradients (2) and states (12)",
)
def right_for_large_models_only(*setting):
    found = plan(*setting)
    return found if setting[0] > 1e8 else found | {"held": found["held"] + 4}


@wrong("sharded_adam", "states", "0 bytes of optimizer states, of 484: numbers are kept outside of tensors")
def moments_in_numpy(weights, adam):
    p = dist.get_world_size()
    padding = -len(weights) % p
    options = adam([weights[:1].clone()]).defaults
    lr, (b1, b2), eps = options["lr"], options["betas"], options["eps"]
    m, v, t = weights.numpy() * 0, weights.numpy() * 0, 0

    def step(gradient):
        nonlocal t
        t += 1
        padded = F.pad(gradient, (0, padding))
        part = padded.new_empty(len(padded) // p)
        dist.reduce_scatter_single(part, padded)
        part /= p
        dist.all_gather_single(padded, part)
        g = padded[: len(weights)].numpy()
        m[:] = b1 * m + (1 - b1) * g
        v[:] = b2 * v + (1 - b2) * g * g
        change = lr * (m / (1 - b1**t)) / ((v / (1 - b2**t)) ** 0.5 + eps)
        weights.sub_(torch.from_numpy(change))

    return step


@wrong("mended_fsdp", "values", "so they are added up")
def averages_squares(checkpoint, batches, max_norm):
    p, rank = dist.get_world_size(), dist.get_rank()

    def gather(shard):
        row = torch.empty(p * shard.numel())
        dist.all_gather_single(row, shard)
        return row.view(checkpoint.width, checkpoint.width)

    layers = range(checkpoint.layers)
    shards = [checkpoint.weight(layer).flatten().chunk(p)[rank].clone() for layer in layers]
    momenta = [checkpoint.momentum(layer).flatten().chunk(p)[rank].clone() for layer in layers]
    for inputs, targets in batches:
        y, saved, gradients = inputs, [], []
        for shard in shards:
            x, weight = y, gather(shard)
            y = torch.tanh(x @ weight)
            saved.append((x, y))
        grad = 2 * (y - targets) / y.numel()
        for (x, y), shard in zip(reversed(saved), reversed(shards)):
            weight = gather(shard)
            grad = grad * (1 - y * y)
            mean = torch.empty_like(shard)
            dist.reduce_scatter_single(mean, (x.T @ grad).flatten() / p)
            gradients.insert(0, mean)
            grad = grad @ weight.T
        square = sum(gradient.square().sum() for gradient in gradients)
        dist.all_reduce(square)
        square /= p
        factor = (max_norm / square.sqrt()).clamp(max=1.0)
        for shard, momentum, gradient in zip(shards, momenta, gradients):
            momentum.mul_(0.9).add_(gradient * factor)
            shard.sub_(momentum, alpha=0.1)
    return shards


@wrong("mended_fsdp", "values", "should be the gradient that is added to it")
def clips_the_momentum(checkpoint, batches, max_norm):
    p, rank = dist.get_world_size(), dist.get_rank()

    def gather(shard):
        row = torch.empty(p * shard.numel())
        dist.all_gather_single(row, shard)
        return row.view(checkpoint.width, checkpoint.width)

    layers = range(checkpoint.layers)
    shards = [checkpoint.weight(layer).flatten().chunk(p)[rank].clone() for layer in layers]
    momenta = [checkpoint.momentum(layer).flatten().chunk(p)[rank].clone() for layer in layers]
    for inputs, targets in batches:
        y, saved, gradients = inputs, [], []
        for shard in shards:
            x, weight = y, gather(shard)
            y = torch.tanh(x @ weight)
            saved.append((x, y))
        grad = 2 * (y - targets) / y.numel()
        for (x, y), shard in zip(reversed(saved), reversed(shards)):
            weight = gather(shard)
            grad = grad * (1 - y * y)
            mean = torch.empty_like(shard)
            dist.reduce_scatter_single(mean, (x.T @ grad).flatten() / p)
            gradients.insert(0, mean)
            grad = grad @ weight.T
        square = sum(gradient.square().sum() for gradient in gradients)
        dist.all_reduce(square)
        factor = (max_norm / square.sqrt()).clamp(max=1.0)
        for shard, momentum, gradient in zip(shards, momenta, gradients):
            momentum.mul_(0.9).add_(gradient)
            shard.sub_(momentum * factor, alpha=0.1)
    return shards


@wrong("mended_fsdp", "peak", "numbers are kept outside of tensors, in lists, bytes or NumPy's arrays")
def whole_weights_in_numpy(checkpoint, batches, max_norm):
    """From forward to backward, where they are gathered once more for the bytes' sake."""
    p, rank = dist.get_world_size(), dist.get_rank()
    layers = range(checkpoint.layers)
    shards = [checkpoint.weight(layer).flatten().chunk(p)[rank].clone() for layer in layers]
    momenta = [checkpoint.momentum(layer).flatten().chunk(p)[rank].clone() for layer in layers]
    for inputs, targets in batches:
        y, saved, gradients = inputs, [], []
        for shard in shards:
            x, weight = y, gathered(shard).view(checkpoint.width, -1)
            y = torch.tanh(x @ weight)
            saved.append((x, y, weight.numpy().copy()))
        grad = 2 * (y - targets) / y.numel()
        for (x, y, kept), shard in zip(reversed(saved), reversed(shards)):
            grad = grad * (1 - y * y)
            gradients.insert(0, average(x.T @ grad))
            gathered(shard)
            grad = grad @ torch.from_numpy(kept).T
        square = everybodys(sum(gradient.square().sum() for gradient in gradients))
        for shard, momentum, gradient in zip(shards, momenta, gradients):
            momentum.mul_(0.9).add_(gradient * clamped(max_norm, square.sqrt()))
            shard.sub_(momentum, alpha=0.1)
    return shards


@wrong("shard_gradients", "runs", "'NoneType' object has no attribute")
def a_hook_that_knows_the_last_layer_alone(layers):
    mine = {}

    def ready(parameter):
        mine[parameter] = average(parameter.grad)
        parameter.grad = None

    for layer in layers:
        layer.register_post_accumulate_grad_hook(lambda _: ready(layer))
    return lambda: [mine.pop(layer) for layer in layers]


@wrong("sharded_adam", "bytes", "where 1,440 are right")
def fills_up_what_is_full(weights, adam):
    p, rank = dist.get_world_size(), dist.get_rank()
    padding = p - len(weights) % p
    shard = F.pad(weights, (0, padding)).chunk(p)[rank].clone()
    optimizer = adam([shard])

    def step(gradient):
        shard.grad = average(F.pad(gradient, (0, padding)))
        optimizer.step()
        weights.copy_(gathered(shard)[: len(weights)])

    return step
