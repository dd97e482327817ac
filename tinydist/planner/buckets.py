"""Gradient buckets as ZeRO fills them: their parameters, and the lifetime of their unsharded gradients.

    backward      head | MLP, attention of the last block | ... of the first | embedding
    a bucket      begins with the first gradient that comes, is full with the last, and reduced when those before it are
    ZeRO 2, 3     and then freed: its mean is taken over shards, next over replicas, and each is waited for when a
                  bucket after it is reduced. So it is gone when the second one after it is, or backward ends

What ranks of a tensor group have alike travels apart from what is cut; and experts, over other ranks, from the rest:
one after another has its gradients, the last one first. (zero/zero1.py, zero/overlap.py, experts/parts.py)
"""

from functools import lru_cache
from itertools import accumulate
from typing import NamedTuple

from .latent import matrices

BUCKET = 25 * 2**20  # bytes of parameters that travel together
DOWN, GATED, UP, MLP_NORM, OUT, QKV, NORM = range(7)  # the order in which gradients of a block come
OF_EXPERT = 3  # the first ones, for each expert of a rank


class Weight(NamedTuple):
    numbers: int
    copies: int  # ranks of the tensor group that have them
    comes: int  # when its gradient does
    experts: bool = False


class GradientBucket(NamedTuple):
    numbers: int
    begins: int
    full: int
    freed: int
    experts: bool


def weights(comes, *sizes, copies=1, experts=False):
    return [Weight(size, copies, comes, experts) for size in sizes]


def later(model):
    """By how much what follows the MLP's matrices in backward comes later, as there are more of them."""
    return OF_EXPERT * (model.experts.own - 1) if model.experts else 0


def times_of(model):
    return NORM + 1 + later(model)


@lru_cache(4096)
def block(model, t):
    """Each parameter of a block on a rank of the tensor group, in the order in which the model has them."""
    if model.experts:
        attention = [each for each in block(model.dense, t) if each.comes >= MLP_NORM]
        return (*[each._replace(comes=each.comes + later(model)) for each in attention], *mixture(model, t))
    D, E, F, b = model.width, model.head_dim, model.inner // t, model.biases
    heads, keys = model.heads // t * E, max(1, model.kv_heads // t) * E
    norms = {comes: weights(comes, *norm_sizes(model), copies=t) for comes in (MLP_NORM, NORM)}
    out, down = weights(OUT, D * heads), weights(DOWN, D * F)
    if model.latent:
        down, up, last = (weights(QKV, *[a * b for a, b in each], copies=c) for each, c in of_latent(model, t))
        latents = weights(QKV, model.latent.queries, model.latent.keys, copies=t)
        mlp = weights(UP, F * D) + weights(GATED, F * D) + weights(DOWN, D * F)
        return (
            *down,
            *latents,
            *up,
            *[each._replace(comes=OUT) for each in last],
            *norms[NORM],
            *norms[MLP_NORM],
            *mlp,
        )
    if model.gated:
        shared = weights(QKV, keys * D, keys * D, copies=max(1, t // model.kv_heads))
        up = weights(UP, F * D) + weights(GATED, F * D)
        return (*weights(QKV, heads * D), *shared, *out, *norms[NORM], *norms[MLP_NORM], *up, *down)
    qkv = heads + 2 * keys
    attention = weights(QKV, qkv * D, *[qkv] * b) + out + weights(OUT, *[D] * b, copies=t)
    mlp = weights(UP, F * D, *[F] * b) + down + weights(DOWN, *[D] * b, copies=t)
    return (*norms[NORM], *attention, *norms[MLP_NORM], *mlp)


def of_latent(model, t):
    """Matrices, and how many ranks have them."""
    down, up, out = matrices(model, t)
    return (down, t), (up, 1), ([out], 1)


def mixture(model, t):
    """The router, shared experts, and a rank's own."""
    of, D = model.experts, model.width
    router = weights(MLP_NORM + later(model), of.total * D, copies=t)
    shared = weights(MLP_NORM + later(model), *[D * of.shared * of.inner // t] * (2 + model.gated) * (of.shared > 0))
    for number in reversed(range(of.own)):
        begins, size = OF_EXPERT * number, D * of.inner // t
        order = (GATED, UP, DOWN) if model.gated else (UP, DOWN)
        shared += [Weight(size, 1, begins + comes, True) for comes in order]
    return router + shared


def norm_sizes(model):
    return [model.width] * (2 if model.norm == "layer" else 1)


def table(model, t):
    return -(-model.vocabulary // t) * model.width


@lru_cache(4096)
def block_of(model, t, experts=None):
    """Numbers of a block: all, those of experts (True), or the others."""
    return sum(each.numbers for each in block(model, t) if experts in (None, each.experts))


@lru_cache(4096)
def numbers_of(model, t, layers, first, last, experts=False):
    """Of a rank of a pipeline, all its parameters but those of experts; or these."""
    found = all_weights(model, t, layers, first, last)
    return sum(weight.numbers for _, _, weight in found if weight.experts == experts)


def all_weights(model, t, layers, first, last):
    """(unit, is it of two stages, Weight) of a rank of a pipeline. A unit is what ZeRO 3 gathers at once."""
    times, words = times_of(model), table(model, t)
    end = (layers + 1) * times
    alone, tied = first and last, model.tied
    if first:
        yield (None if alone and tied else 0), tied and not alone, Weight(words, 1, end + 1)
        if model.positions == "learned":
            yield 0, False, Weight(model.tokens * model.width, t, end)
    for number in range(layers):
        begins = (layers - number) * times
        own = block(model.dense if first and number < model.dense_layers else model, t)
        yield from ((number + 1, False, each._replace(comes=begins + each.comes)) for each in own)
    if last:
        yield from ((layers + 1, False, each) for each in weights(1, *norm_sizes(model), copies=t))
        if not (alone and tied):
            yield layers + 1, tied, Weight(words, 1, 0)


def filled(given, item, by_unit):
    """Lists of (place, Weight), in the order of their making: from the last parameter on, until there are enough."""
    alike = {}
    for place, (unit, shared, weight) in enumerate(given):
        alike.setdefault((by_unit and unit, weight.copies, shared, weight.experts), []).append((place, weight))
    for some in alike.values():
        found, held = [], BUCKET
        for place, weight in reversed(some):
            if held >= BUCKET and not (by_unit and found):
                found.append([])
                held = 0
            found[-1].append((place, weight))
            held += weight.numbers * item
        yield from found


@lru_cache(4096)
def buckets(model, t, layers, first, last, item, by_unit=False):
    """Bucket, in the order in which they are made; the optimizer steps in it. ``by_unit``: as in ZeRO 3."""
    lists = list(filled(all_weights(model, t, layers, first, last), item, by_unit))
    full = [max(weight.comes for _, weight in each) for each in lists]
    order = sorted(range(len(lists)), key=lambda number: -min(place for place, _ in lists[number]))
    reduced = [*accumulate((full[number] for number in order), max)]
    freed = dict(zip(order, [*reduced[2:], *[(layers + 2) * times_of(model)] * 2]))

    def bucket(number, some):
        numbers, comes = sum(weight.numbers for weight in some), min(weight.comes for weight in some)
        return GradientBucket(numbers, comes, full[number], freed[number], some[0].experts)

    return tuple(bucket(number, [weight for _, weight in each]) for number, each in enumerate(lists))


class WholeGradients(NamedTuple):
    """Numbers that have whole gradients, and those that had."""

    numbers: int
    freed: int


@lru_cache(4096)
def whole_gradients(model, t, layers, first, last, item, by_unit, experts, sharded):
    """Of experts, or of the rest, at each time of a backward: as a gradient comes, and then. Unless they are
    ``sharded`` they stay."""
    ends = (layers + 2) * times_of(model)
    begun, freed = [0] * (ends + 1), [0] * (ends + 1)
    for bucket in (each for each in buckets(model, t, layers, first, last, item, by_unit) if each.experts == experts):
        begun[bucket.begins] += bucket.numbers
        freed[bucket.freed if sharded else ends] += bucket.numbers
    begun, freed = [*accumulate(begun)], [*accumulate(freed)]
    before = [0, *freed]
    return tuple((WholeGradients(a - b, b), WholeGradients(a - c, c)) for a, b, c in zip(begun, before, freed))
