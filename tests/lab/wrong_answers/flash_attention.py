"""Wrong answers to the exercises of 10_flash_attention: each with the property that rejects it, and what it is told."""

import importlib
import math
import textwrap

import numpy
import torch
import torch.nn.functional as F
from lab.registered import collection
from torch.nn.attention import bias
from torch.nn.functional import scaled_dot_product_attention

from tinydist import attention
from tinydist.attention import online_softmax
from tinydist.lab.find import find

WRONG_ANSWERS, wrong = collection()
INF = math.inf
LOWEST = torch.finfo(torch.float32).min


# merge_states


def merged(a, b, of_a=None, of_b=None, lse=torch.logaddexp, finite=lambda lse: lse.clamp(min=LOWEST)):
    """``of_a(c, a's lse, b's)``: the factor, where c is the common lse, or what is subtracted for it."""
    known = lse(a[1], b[1])
    common = finite(known)
    of_a, of_b = (of or right for of, right in ((of_a, from_a), (of_b, from_b)))
    of_a, of_b = (torch.as_tensor(of(common, a[1], b[1]))[..., None] for of in (of_a, of_b))
    return of_a * a[0] + of_b * b[0], known


def one(c, a, b):
    return 1.0


def from_a(c, a, b):
    return (a - c).exp()


def from_b(c, a, b):
    return (b - c).exp()


@wrong("merge_states", "values", "it returned nothing (None), where 2 tensors are right: out, lse")
def does_nothing(a, b):
    pass


@wrong("merge_states", "values", "This is what a has, as if b had seen nothing")
def returns_a(a, b):
    return a


@wrong("merge_states", "own work", "you call tinydist.attention, where this is solved")
def librarys_own(a, b):
    parts = (online_softmax.Part(lse[:, None], torch.ones(len(lse), 1), out) for out, lse in (a, b))
    out, lse = online_softmax.finish(online_softmax.merge(*parts))
    return out, lse.squeeze(1)


@wrong("merge_states", "values", "This is the sum of both outputs, as they are")
def adds(a, b):
    return merged(a, b, one, one)


@wrong("merge_states", "values", "Each output is scaled by exp(its lse), from which the common one was not subtracted")
def without_the_common_lse(a, b):
    return merged(a, b, lambda c, a, b: a.exp(), lambda c, a, b: b.exp())


@wrong("merge_states", "values", "The weights count from the larger lse, and add up to more than 1")
def from_the_larger(a, b):
    out, _ = merged(a, b, lse=torch.maximum)
    return out, torch.logaddexp(a[1], b[1])


@wrong("merge_states", "values", "This is the larger lse: exp of both are sums that add up")
def the_larger_lse(a, b):
    return merged(a, b)[0], torch.maximum(a[1], b[1])


@wrong("merge_states", "values", "This is the sum of two logarithms")
def adds_logarithms(a, b):
    return merged(a, b)[0], a[1] + b[1]


@wrong("merge_states", "values", "The larger lse was subtracted before exp, and is not added again")
def counts_from_the_larger(a, b):
    out, lse = merged(a, b)
    return out, lse - torch.maximum(a[1], b[1])


@wrong(
    "merge_states", "values", "lse of a near 300, of b near 298 (exp of more than 88 is inf): 15 of 15 numbers of out"
)
def exponentials_as_they_are(a, b):
    return merged(a, b, lse=lambda a, b: (a.exp() + b.exp()).log())


@wrong("merge_states", "values", "lse near -300 (exp of less than -104 is 0: subtract the common number itself): 15 of")
def lse_from_minus_100_on(a, b):
    def lse(a, b):
        c = torch.maximum(a, b).clamp(min=-100)
        return ((a - c).exp() + (b - c).exp()).log() + c

    return merged(a, b, lse=lse)


@wrong(
    "merge_states",
    "values",
    "lse near -300 (exp of less than -104 is 0: subtract the common number itself): Each output is scaled by",
)
def factors_from_0_on(a, b):
    return merged(a, b, finite=lambda lse: lse.clamp(min=0))


@wrong("merge_states", "values", "-inf - -inf is NaN")
def without_care_for_nothing(a, b):
    return merged(a, b, finite=lambda lse: lse)


@wrong("merge_states", "values", "lse stays -inf: that finite number is for exp alone")
def a_finite_lse_of_nothing(a, b):
    out, lse = merged(a, b)
    return out, lse.clamp(min=LOWEST)


@wrong("merge_states", "any order", "out from the left")
def leaves_out_a_part_below_a_thousandth(a, b):
    a, b = ((out, lse.masked_fill(lse < other - 7, -INF)) for (out, lse), other in ((a, b[1]), (b, a[1])))
    return merged(a, b)


@wrong("merge_states", "values", "a[0] has changed: it belongs to the caller")
def in_place(a, b):
    out, lse = merged(a, b)
    a[0].copy_(out), a[1].copy_(lse)
    return a


# choose_tile


def tile(
    gpu, head_dim, tokens, stages=None, shared=2, registers=4, scores=True, best=max, rule=None, programs=math.ceil,
    queries=1, flops=4,
):  # fmt: skip
    """A right one, with options that are not."""
    fitting = []
    for pair in ((2**power, keys) for power in range(4, 11) for keys in range(16, 1025, 16)):
        in_shared = shared * head_dim * (pair[0] + (stages or 2 * gpu.stages) * pair[1])
        in_registers = registers * pair[0] * (head_dim + pair[1] * scores)
        if in_shared <= gpu.shared and in_registers <= gpu.registers:
            fitting.append(pair)
    chosen = best(fitting, key=rule)
    loaded = 2 * head_dim * tokens * (queries + 2 * programs(tokens / chosen[0]))
    waits = flops * tokens**2 * head_dim / loaded < gpu.needed
    return {"queries": chosen[0], "keys": chosen[1], "bytes": loaded, "waits": waits}


@wrong("choose_tile", "tile", "it returned nothing (None)")
def chooses_nothing(gpu, head_dim, tokens):
    pass


@wrong("choose_tile", "tile", "keys is 128, and that is not right")
def always_128_by_128(gpu, head_dim, tokens):
    return {**tile(gpu, head_dim, tokens), "queries": 128, "keys": 128}


@wrong("choose_tile", "tile", "The stages are not counted")
def no_stages(gpu, head_dim, tokens):
    return tile(gpu, head_dim, tokens, stages=2)


@wrong("choose_tile", "tile", "A stage has a tile of keys and a tile of values")
def keys_alone(gpu, head_dim, tokens):
    return tile(gpu, head_dim, tokens, stages=gpu.stages)


@wrong("choose_tile", "tile", "The scores of the tile are in registers, too")
def no_scores(gpu, head_dim, tokens):
    return tile(gpu, head_dim, tokens, scores=False)


@wrong("choose_tile", "tile", "Output and scores are sums, and kept in 32 bits")
def sums_in_16_bits(gpu, head_dim, tokens):
    return tile(gpu, head_dim, tokens, registers=2)


@wrong("choose_tile", "tile", "More keys are preferred to more queries")
def most_keys(gpu, head_dim, tokens):
    return tile(gpu, head_dim, tokens, rule=lambda pair: (pair[1], pair[0]))


@wrong("choose_tile", "tile", "The tile is the largest that fits")
def largest(gpu, head_dim, tokens):
    return tile(gpu, head_dim, tokens, rule=lambda pair: (pair[0] * pair[1], pair[0]))


@wrong("choose_tile", "tile", "a tile need not be a square")
def a_square(gpu, head_dim, tokens):
    return tile(gpu, head_dim, tokens, rule=lambda pair: (pair[0] == pair[1], pair))


@wrong("choose_tile", "bytes", "The last tile may be short")
def all_tiles_full(gpu, head_dim, tokens):
    found = tile(gpu, head_dim, tokens)
    programs = math.ceil(tokens / found["queries"])
    return found | {"bytes": programs * 2 * head_dim * (found["queries"] + 2 * tokens)}


@wrong("choose_tile", "bytes", "The output is stored")
def output_too(gpu, head_dim, tokens):
    return tile(gpu, head_dim, tokens, queries=2)


@wrong("choose_tile", "bytes", "Keys and values are counted once")
def each_byte_once(gpu, head_dim, tokens):
    return tile(gpu, head_dim, tokens, programs=lambda _: 1)


@wrong("choose_tile", "bytes", "A last tile that is not full has a program, too: round up")
def whole_tiles(gpu, head_dim, tokens):
    return tile(gpu, head_dim, tokens, programs=math.floor)


@wrong("choose_tile", "bytes", "The queries are loaded, too, each once")
def no_queries(gpu, head_dim, tokens):
    return tile(gpu, head_dim, tokens, queries=0)


@wrong("choose_tile", "waits", "There are two products")
def one_product(gpu, head_dim, tokens):
    return tile(gpu, head_dim, tokens, flops=2)


@wrong("choose_tile", "waits", "waits")
def never_waits(gpu, head_dim, tokens):
    return {**tile(gpu, head_dim, tokens), "waits": False}


@wrong("choose_tile", "waits", "waits")
def tiles_wait(gpu, head_dim, tokens):
    return {**tile(gpu, head_dim, tokens), "waits": None}


# flash_row


def causal(i, p, c, j):
    return j <= p


def walk(q, k, v, start, tile, *, sees=causal, scale=None, until=None, scores_of=None, first_maximum=-INF, **options):
    """A right one, but for its options. Returns maximum, total, output."""
    scale = 1 / math.sqrt(q.shape[1]) if scale is None else scale
    maximum, sums, out = torch.full((len(q), 1), first_maximum), torch.zeros(len(q), 1), torch.zeros(len(q), v.shape[1])
    hidden, total, output = (
        options.get(name, right) for name, right in (("hidden", -INF), ("total", 1), ("output", 1))
    )
    i = torch.arange(len(q))[:, None]
    until = min(len(k), start + len(q)) if until is None else until
    for first in range(0, until, tile):
        keys, values = k[first : first + tile], v[first : first + tile]
        c = torch.arange(len(keys))
        scores = (scores_of or torch.matmul)(q, keys.T) * scale
        scores = scores.masked_fill(~sees(i, start + i, c, first + c), hidden)
        highest = torch.maximum(maximum, scores.amax(1, keepdim=True))
        weights, factor = (scores - highest).exp(), (maximum - highest).exp()
        sums = (sums * factor if total else sums) + weights.sum(1, keepdim=True)
        out = (out * factor if output else out) + weights @ values
        out = out / sums if options.get("divided") else out
        maximum = highest
    return maximum, sums, out


def finished(maximum, total, output):
    return output / total, (maximum + total.log()).squeeze(1)


@wrong("flash_row", "values", "it returned a tensor, where 2 tensors are right")
def without_lse(q, k, v, start, tile):
    return finished(*walk(q, k, v, start, tile))[0]


@wrong("flash_row", "own work", "you call torch's scaled_dot_product_attention")
def torchs_own(q, k, v, start, tile):
    p = torch.arange(start, start + len(q))[:, None]
    mask = torch.arange(len(k)) <= p
    scores = (q @ k.T / math.sqrt(q.shape[1])).masked_fill(~mask, -INF)
    return scaled_dot_product_attention(q[None], k[None], v[None], mask)[0], scores.logsumexp(1)


@wrong("flash_row", "own work", "you call the solution of flash_row, where this is solved; here it is for you to do")
def the_labs_own(q, k, v, start, tile):
    return importlib.import_module("10_flash_attention.flash_row").flash_row(q, k, v, start, tile)


@wrong("flash_row", "values", "The scores are not divided by sqrt(d)")
def unscaled(q, k, v, start, tile):
    return finished(*walk(q, k, v, start, tile, scale=1.0))


@wrong("flash_row", "values", "The output is not divided by total")
def undivided(q, k, v, start, tile):
    maximum, total, output = walk(q, k, v, start, tile)
    return output, finished(maximum, total, output)[1]


@wrong("flash_row", "values", "The log-sum-exp lacks the maximum")
def lse_without_the_maximum(q, k, v, start, tile):
    _, total, output = walk(q, k, v, start, tile)
    return output / total, total.log().squeeze(1)


@wrong("flash_row", "values", "No key is masked, and a query sees what comes after it")
def unmasked(q, k, v, start, tile):
    return finished(*walk(q, k, v, start, tile, sees=lambda i, p, c, j: p >= 0 * j, until=len(k)))


@wrong("flash_row", "values", "The mask is off by one: a query does not see itself")
def does_not_see_itself(q, k, v, start, tile):
    return finished(*walk(q, k, v, start, tile, sees=lambda i, p, c, j: j < p))


@wrong("flash_row", "values", "The mask counts queries from the tile's own first")
def forgets_the_start(q, k, v, start, tile):
    return finished(*walk(q, k, v, start, tile, sees=lambda i, p, c, j: j <= i))


@wrong("flash_row", "values", "a tile below the diagonal needs no mask")
def one_mask_for_all_tiles(q, k, v, start, tile):
    return finished(*walk(q, k, v, start, tile, sees=lambda i, p, c, j: c <= i))


@wrong("flash_row", "values", "The rescaling is forgotten")
def forgets_to_rescale(q, k, v, start, tile):
    return finished(*walk(q, k, v, start, tile, total=False, output=False))


@wrong(
    "flash_row",
    "values",
    "(the last tile begins with the last query's own key): The tile on the diagonal is not visited",
)
def stops_one_tile_early(q, k, v, start, tile):
    return finished(*walk(q, k, v, start, tile, until=max(1, min(len(k), start + len(q)) - 1)))


@wrong("flash_row", "values", "(the last tile is short, and is seen): 6 of 6 numbers of out are wrong")
def whole_tiles_alone(q, k, v, start, tile):
    seen = min(len(k), start + len(q))
    return finished(*walk(q, k, v, start, tile, until=min(seen, len(k) // tile * tile or seen)))


@wrong(
    "flash_row", "values", "(large scores: exp of more than 88 is inf, so take it of at most 0): 3 of 3 numbers of out"
)
def without_a_maximum(q, k, v, start, tile):
    seen = range(0, min(len(k), start + len(q)), tile)
    p, total, output = torch.arange(start, start + len(q))[:, None], 0, 0
    for first in seen:
        keys = k[first : first + tile]
        weights = (q @ keys.T / math.sqrt(q.shape[1])).exp() * (torch.arange(first, first + len(keys)) <= p)
        total, output = total + weights.sum(1, keepdim=True), output + weights @ v[first : first + tile]
    return output / total, total.log().squeeze(1)


@wrong(
    "flash_row",
    "values",
    "which no query sees: visit none of their tiles, for 0 times NaN is NaN): 12 of 12 numbers of out",
)
def visits_all_tiles(q, k, v, start, tile):
    return finished(*walk(q, k, v, start, tile, until=len(k)))


def naive(q, k, v, start):
    seen = min(len(k), start + len(q))
    scores = q @ k[:seen].T / math.sqrt(q.shape[1])
    scores = scores.masked_fill(torch.arange(seen) > torch.arange(start, start + len(q))[:, None], -INF)
    return scores.softmax(1) @ v[:seen], scores.logsumexp(1)


@wrong("flash_row", "memory", "Which of your tensors grows with the length?")
def all_scores_at_once(q, k, v, start, tile):
    return naive(q, k, v, start)


@wrong(
    "flash_row",
    "memory",
    "it holds 6,496 bytes besides its arguments, where 3,072 are enough: 8 tiles of scores, output",
)
def keeps_all_tiles(q, k, v, start, tile):
    kept = []

    def keep(a, b):
        kept.append(a @ b)
        return kept[-1]

    return finished(*walk(q, k, v, start, tile, scores_of=keep))


@wrong(
    "flash_row", "values", "The tile on the diagonal is not visited: keys from `start` on, where the queries stand, are"
)
def stops_at_the_start(q, k, v, start, tile):
    return finished(*walk(q, k, v, start, tile, until=start))


@wrong("flash_row", "values", "The output is divided by total with each tile, and added to")
def divides_with_each_tile(q, k, v, start, tile):
    maximum, total, output = walk(q, k, v, start, tile, divided=True)
    return output, finished(maximum, total, output)[1]


@wrong("flash_row", "values", "q has changed: it belongs to the caller")
def scales_in_place(q, k, v, start, tile):
    q /= math.sqrt(q.shape[1])
    return finished(*walk(q, k, v, start, tile, scale=1.0))


@wrong("flash_row", "values", "Hidden keys have a finite score, and exp of it counts: it must be -inf.")
def hides_by_minus_100(q, k, v, start, tile):
    return finished(*walk(q, k, v, start, tile, hidden=-100.0))


@wrong(
    "flash_row",
    "values",
    "exp of less than -104 is 0, so subtract the maximum of the scores itself): 12 of 12 numbers of out",
)
def begins_with_a_maximum_of_0(q, k, v, start, tile):
    return finished(*walk(q, k, v, start, tile, first_maximum=0.0))


@wrong(
    "flash_row",
    "values",
    "(a hidden key has a score of 400: mask the scores before the maximum): 3 of 12 numbers of out",
)
def hides_after_exp(q, k, v, start, tile):
    maximum, total, output = torch.full((len(q), 1), -INF), 0, 0
    p = torch.arange(start, start + len(q))[:, None]
    for first in range(0, min(len(k), start + len(q)), tile):
        keys, values = k[first : first + tile], v[first : first + tile]
        scores = q @ keys.T / math.sqrt(q.shape[1])
        highest = torch.maximum(maximum, scores.amax(1, keepdim=True))
        weights = (scores - highest).exp() * (torch.arange(first, first + len(keys)) <= p)
        factor, maximum = (maximum - highest).exp(), highest
        total, output = total * factor + weights.sum(1, keepdim=True), output * factor + weights @ values
    return finished(maximum, total, output)


@wrong("flash_row", "values", "who hides it, hides that the model has diverged): 4 of 12 numbers of out")
def hides_nan(*given):
    return tuple(each.nan_to_num() for each in finished(*walk(*given)))


def of_numpy(q, k, v, offset):
    p = numpy.arange(len(q))[:, None] + offset
    q, k, v = (each.numpy() for each in (q, k, v))
    scores = numpy.where(numpy.arange(len(k)) <= p, q @ k.T / math.sqrt(q.shape[1]), -INF)
    highest = scores.max(1, keepdims=True).clip(min=LOWEST)
    weights = numpy.exp(scores - highest)
    total = weights.sum(1, keepdims=True)
    return weights @ v / total.clip(min=1), (highest + numpy.log(total.clip(min=1)))[:, 0]


@wrong("flash_row", "visits", "NumPy, Python's lists, (a * b).sum() and products of vectors lie outside of the meter")
def with_numpy(q, k, v, start, tile):
    seen = slice(0, start + len(q))
    return tuple(map(torch.from_numpy, of_numpy(q, k[seen], v[seen], start)))


@wrong("flash_row", "visits", "it multiplies matrices 3 times with 352 FLOPs, where 2 products with 224 are enough. Is")
def scores_twice(q, k, v, start, tile):
    """The maximum first."""
    return finished(*walk(q, k, v, start, tile, scores_of=lambda a, b: (a @ b).maximum(a @ b)))


@wrong("flash_row", "visits", "it multiplies matrices 8 times, where 2 are enough: in larger parts")
def tiles_of_one(q, k, v, start, tile):
    return finished(*walk(q, k, v, start, 1))


# flash_column


def collect(k, v, q, dout, lse, delta, start, tile, *, options=None, begin=None, end=None):
    """A right one, but for its options."""
    options = options or {}
    root, positions = math.sqrt(q.shape[1]), torch.arange(start, start + len(k))
    dk, dv = torch.zeros_like(k), torch.zeros_like(v)
    for first in range(start // tile * tile if begin is None else begin, len(q) if end is None else end, tile):
        rows = slice(first, first + tile)
        scores = q[rows] @ k.T * options.get("scale", 1 / root)
        p = torch.arange(first, first + len(scores))[:, None]
        scores = scores.masked_fill(~options.get("sees", torch.ge)(p, positions), -INF)
        weights = options.get("weights", lambda scores, lse: (scores - lse[:, None]).exp())(scores, lse[rows])
        dweights = dout[rows] @ v.T
        dscores = options.get("dscores", lambda w, dw, delta: w * (dw - delta[:, None]))(weights, dweights, delta[rows])
        transposed = options.get("transposed", lambda x: x.T)
        add_k, add_v = transposed(dscores) @ q[rows] * options.get("dscale", 1 / root), transposed(weights) @ dout[rows]
        dk, dv = options.get("sum", lambda a, b: (a[0] + b[0], a[1] + b[1]))((dk, dv), (add_k, add_v))
    return dk, dv


@wrong("flash_column", "values", "16 of 16 numbers of dk are wrong")
def returns_its_input(k, v, *rest):
    return k, v


@wrong("flash_column", "own work", "you call torch's scaled_dot_product_attention")
def torchs_gradient(k, v, q, dout, lse, delta, start, tile):
    dk, dv = collect(k, v, q, dout, lse, delta, start, tile)
    F.scaled_dot_product_attention(q[None], k[None], v[None])
    return dk, dv


@wrong("flash_column", "values", "The transpose is forgotten: a key collects from all queries of the tile")
def without_transpose(*given):
    square = given[0].shape[0] == given[-1] and len(given[2]) % given[-1] == 0
    return collect(*given, options={"transposed": lambda x: x if square else x.T})


@wrong(
    "flash_column", "values", "dscores is not scaled: the scores are q k^T / sqrt(d), so dk needs the 1 / sqrt(d), too"
)
def dk_without_scale(*given):
    return collect(*given, options={"dscale": 1.0})


@wrong("flash_column", "values", "Delta is missing")
def without_delta(*given):
    return collect(*given, options={"dscores": lambda w, dw, delta: w * dw})


@wrong("flash_column", "values", "The softmax is taken over this tile of keys alone")
def softmax_of_the_tile(*given):
    return collect(*given, options={"weights": lambda scores, lse: scores.softmax(1).nan_to_num()})


@wrong("flash_column", "values", "The mask is forgotten: queries before a key do not see it")
def without_mask(*given):
    return collect(*given, options={"sees": lambda p, j: p >= 0 * j})


@wrong("flash_column", "values", "Only the last tile of queries is there: add them up")
def the_last_tile_alone(*given):
    return collect(*given, options={"sum": lambda a, b: b})


@wrong("flash_column", "values", "(the last tile is short): 16 of 16 numbers of dk are wrong")
def whole_tiles_of_queries(*given):
    q, tile = given[2], given[-1]
    whole = len(q) // tile * tile
    return collect(*given, end=whole if len(q) == 11 else len(q))


@wrong(
    "flash_column",
    "values",
    "where none sees these keys: visit none of their tiles, for 0 times NaN is NaN): 16 of 16 numbers of dk",
)
def begins_at_the_first_query(*given):
    return collect(*given, begin=0)


@wrong("flash_column", "memory", "Which of your tensors grows with the length?")
def all_weights_at_once(k, v, q, dout, lse, delta, start, tile):
    return collect(k, v, q, dout, lse, delta, start, len(q) if start == 0 else tile)


@wrong("flash_column", "values", "q has changed: it belongs to the caller")
def scales_queries_in_place(k, v, q, *rest):
    q /= math.sqrt(q.shape[1])
    return collect(k, v, q, *rest, options={"scale": 1.0, "dscale": 1.0})


@wrong("flash_column", "values", "It is all zeros: is nothing added to it")
def zeros_alone(k, v, *rest):
    return torch.zeros_like(k), torch.zeros_like(v)


@wrong("flash_column", "values", "Lse is not subtracted")
def without_lse_of_a_column(*given):
    return collect(*given, options={"weights": lambda scores, lse: scores.exp()})


@wrong("flash_column", "values", "Delta is subtracted after the product, where it belongs inside")
def delta_outside(*given):
    return collect(*given, options={"dscores": lambda w, dw, delta: w * dw - delta[:, None]})


@wrong("flash_column", "values", "Delta is summed over this tile of keys alone")
def delta_of_the_tile(*given):
    return collect(*given, options={"dscores": lambda w, dw, delta: w * (dw - (w * dw).sum(1, keepdim=True))})


@wrong(
    "flash_column", "values", "The mask counts keys from the tile's own first: key i of the tile stands at start + i"
)
def keys_from_0(*given):
    return collect(*given, options={"sees": lambda p, j: p >= j - j[0]})


@wrong("flash_column", "values", "or is every key masked? Query i of a tile stands at first + i")
def queries_from_0(*given):
    return collect(*given, options={"sees": lambda p, j: p - p[0] >= j})


@wrong(
    "flash_column",
    "values",
    "mask the scores before exp, with -inf, for inf times 0 is NaN): 4 of 16 numbers of dk are wrong",
)
def hides_weights(k, v, q, dout, lse, delta, start, tile):
    def weights(scores, lse):
        return (scores - lse[:, None]).exp()

    positions = torch.arange(start, start + len(k))
    dk, dv, root = torch.zeros_like(k), torch.zeros_like(v), math.sqrt(q.shape[1])
    for first in range(start // tile * tile, len(q), tile):
        rows = slice(first, first + tile)
        p = torch.arange(first, first + len(q[rows]))[:, None]
        w = weights(q[rows] @ k.T / root, lse[rows]) * (p >= positions)
        dk += (w * (dout[rows] @ v.T - delta[rows, None])).T @ q[rows] / root
        dv += w.T @ dout[rows]
    return dk, dv


@wrong("flash_column", "visits", "NumPy, Python's lists, (a * b).sum() and products of vectors lie outside")
def by_sums(k, v, q, dout, lse, delta, start, tile):
    own = slice(start // tile * tile, None)
    q, dout, lse, delta = (each[own] for each in (q, dout, lse, delta))
    p = torch.arange(own.start, own.start + len(q))[:, None]
    scores = (q[:, None] * k).sum(2) / math.sqrt(q.shape[1])
    w = (scores.masked_fill(torch.arange(start, start + len(k)) > p, -INF) - lse[:, None]).exp()
    ds = w * ((dout[:, None] * v).sum(2) - delta[:, None])
    return (ds[..., None] * q[:, None]).sum(0) / math.sqrt(q.shape[1]), (w[..., None] * dout[:, None]).sum(0)


@wrong("flash_column", "visits", "it multiplies matrices 16 times, where 4 are enough: in larger parts")
def tiles_of_one_query(*given):
    start, tile = given[-2:]
    return collect(*given[:-1], 1, begin=start // tile * tile)


# mended_flash

MENDED = {
    "lengths": ("torch.arange(start, start + tile)", "torch.arange(start, start + len(queries))"),
    "lengths of states": ("(tile, ", "(len(queries), "),
    "diagonal": ("first >= positions[-1]", "first > positions[-1]"),
    "rescaling": ("output + weights @ values", "output * (maximum - safe).exp() + weights @ values"),
    "nothing": ("(scores - highest)", "(scores - safe)"),
    "nothing in total": ("(maximum - highest)", "(maximum - safe)"),
}
SAFE = "keys, values = k[first : first + tile], v[first : first + tile]"


def mended(*but, also=()):
    """The given program, all but some bugs mended, and with other changes of its text."""
    text = textwrap.dedent(find("mended_flash").source)
    guard = "highest" if "nothing" in but else "highest.clamp(min=torch.finfo(highest.dtype).min)"
    text = text.replace("            weights = (", f"            safe = {guard}\n            weights = (")
    for name, (old, new) in [*MENDED.items(), *((None, change) for change in also)]:
        if name not in but:
            assert old in text
            text = text.replace(old, new)
    names = {"math": math, "torch": torch}
    exec(compile(text, "a mended program", "exec"), names)
    return names["mended_flash"]


def wrongly_mended(rejected_by, told, *but, also=()):
    def register(function):
        program = mended(*but, also=also)
        program.__name__ = function.__name__
        return wrong("mended_flash", rejected_by, told)(program)

    return register


@wrongly_mended(
    "runs",
    "The last tile is short. Which tensors beside it have the length of a whole tile?",
    "lengths",
    "lengths of states",
)
def short_tiles_do_not_fit():
    pass


@wrongly_mended("values", "Total and output, both, are multiplied by exp(old - new)", "rescaling")
def not_rescaled():
    pass


@wrongly_mended("values", "A tile of keys is left out: one whose first key stands where", "diagonal")
def a_tile_left_out():
    pass


@wrongly_mended("values", "-inf - -inf is NaN, as 0 / 0 is", "nothing", "nothing in total")
def nan_where_nothing_is_seen():
    pass


@wrongly_mended(
    "values", "the others do not visit its tile): 24 of 27 numbers are wrong", also=[("first > positions[-1]", "False")]
)
def all_tiles_visited():
    pass


@wrong("mended_flash", "own work", "you call tinydist.attention, where this is solved")
def librarys_flash_attention(q, k, v, tile):
    return attention.flash_attention(*(each[None, None] for each in (q, k, v)), causal=True, tile=(tile, tile))[0, 0]


def dense(q, k, v):
    mask = torch.ones(len(q), len(k), dtype=torch.bool).tril(len(k) - len(q))
    return (q @ k.T / math.sqrt(q.shape[1])).masked_fill(~mask, -INF)


@wrong("mended_flash", "memory", "Which of your tensors grows with the length?")
def a_row_of_scores(q, k, v, tile):
    out = []
    for start in range(0, len(q), tile):
        queries = q[start : start + tile]
        seen = max(0, min(len(k), start + len(queries) + len(k) - len(q)))
        scores = queries @ k[:seen].T / math.sqrt(q.shape[1])
        p = torch.arange(start, start + len(queries))[:, None] + len(k) - len(q)
        scores = scores.masked_fill(torch.arange(seen) > p, -INF)
        out.append(scores.softmax(1).nan_to_num() @ v[:seen])
    return torch.cat(out)


@wrong("mended_flash", "values", "the first two see nothing, and get zeros): 6 of 24 numbers are wrong")
def the_lowest_number_for_a_mask(q, k, v, tile):
    lowest = torch.finfo(q.dtype).min
    return dense(q, k, v).clamp(min=lowest).softmax(1) @ v


@wrong("mended_flash", "values", "(short last tiles, of 2 queries and 2 keys): 6 of 30 numbers are wrong")
def drops_short_tiles(q, k, v, tile):
    out = dense(q, k, v).softmax(1).nan_to_num() @ v
    out[len(q) // tile * tile :] = 0
    return out


@wrongly_mended(
    "values",
    "so subtract the maximum itself, wherever that is finite): 24 of 24",
    also=[("-math.inf)\n        total", "-10.0)\n        total")],
)
def begins_with_minus_10():
    pass


@wrongly_mended(
    "values",
    "so subtract the maximum itself, wherever that is finite): 24 of 24",
    also=[("torch.finfo(highest.dtype).min", "-100")],
)
def finite_from_minus_100_on():
    pass


@wrongly_mended(
    "values",
    "The scores are divided by sqrt(d) twice",
    also=[("queries @ keys.T", "queries @ keys.T / math.sqrt(q.shape[1])")],
)
def scaled_once_more():
    pass


@wrongly_mended(
    "values",
    "q has changed: it belongs to the caller",
    also=[("tile] / math.sqrt(q.shape[1])", "tile].div_(math.sqrt(q.shape[1]))")],
)
def queries_in_place():
    pass


@wrongly_mended(
    "values",
    "the last query sees it, nan_to_num would hide it;",
    "nothing",
    "nothing in total",
    also=[("return out", "return out.nan_to_num()")],
)
def nan_to_num_at_the_end():
    pass


@wrongly_mended(
    "visits",
    "it multiplies matrices 158 times, where 40 are enough: in larger parts",
    also=[("    out = torch", "    tile = min(tile, 4)\n    out = torch")],
)
def tiles_of_four():
    pass


@wrong("mended_flash", "visits", "NumPy, Python's lists, (a * b).sum() and products of vectors lie outside")
def naive_in_numpy(q, k, v, tile):
    out = []
    for first in range(0, len(q), tile):
        queries, start = q[first : first + tile], first + len(k) - len(q)
        seen = slice(0, max(1, start + len(queries)))
        out.append(torch.from_numpy(of_numpy(queries, k[seen], v[seen], start)[0]))
    return torch.cat(out)


@wrong("mended_flash", "own work", "you call torch.nn.attention")
def with_torchs_mask(q, k, v, tile):
    mask = bias.causal_lower_right(len(q), len(k))
    return scaled_dot_product_attention(q[None], k[None], v[None], mask)[0].nan_to_num()


# Constants for -inf, and dtypes.


@wrong("flash_row", "values", "a score of -10^12; hidden ones are lower, -inf): 3 of 12 numbers of out are wrong")
def hides_by_minus_a_billion(q, k, v, start, tile):
    return finished(*walk(q, k, v, start, tile, hidden=-1e9))


@wrong("flash_column", "values", "dk has dtype float32, where float64 is right")
def gradients_in_float32(*given):
    return tuple(each.float() for each in collect(*given))


@wrong("merge_states", "values", "lse stays -inf: that finite number is for exp alone")
def nan_to_num_of_lse(a, b):
    out, lse = merged(a, b)
    return out, lse.nan_to_num()


@wrongly_mended(
    "values",
    "a score of -10^12; hidden ones are lower, -inf): 3 of 12",
    also=[("positions, -math.inf)", "positions, -1e9)")],
)
def hides_by_a_billion_less():
    pass


@wrong("merge_states", "values", "two pairs, of many queries")
def a_mean_of_those_alike(a, b):
    (a_out, a_lse), (b_out, b_lse) = a, b
    lse = torch.logaddexp(a_lse, b_lse)
    nothing = lse == -math.inf
    a_part = (a_lse - lse).exp().masked_fill(nothing, 0)[:, None]
    b_part = (b_lse - lse).exp().masked_fill(nothing, 0)[:, None]
    return torch.where((a_lse - b_lse).abs()[:, None] < 0.1, (a_out + b_out) / 2, a_out * a_part + b_out * b_part), lse


@wrong("flash_row", "values", "divided by the root of the width of the values")
def scales_by_the_values_width(q, k, v, start, tile):
    maximum = q.new_full((len(q), 1), -math.inf)
    total, output = q.new_zeros(len(q), 1), q.new_zeros(len(q), v.shape[1])
    positions = torch.arange(start, start + len(q))[:, None]
    for first in range(0, min(len(k), start + len(q)), tile):
        keys, values = k[first : first + tile], v[first : first + tile]
        scores = q @ keys.T / math.sqrt(v.shape[1])
        scores = scores.masked_fill(torch.arange(first, first + len(keys)) > positions, -math.inf)
        highest = torch.maximum(maximum, scores.amax(1, keepdim=True))
        weights = (scores - highest).exp()
        old = (maximum - highest).exp()
        total = total * old + weights.sum(1, keepdim=True)
        output = output * old + weights @ values
        maximum = highest
    return output / total, (maximum + total.log())[:, 0]


@wrong("flash_row", "runs", "it does not end")
def never_moves_on(q, k, v, start, tile):
    maximum = q.new_full((len(q), 1), -math.inf)
    total, output = q.new_zeros(len(q), 1), q.new_zeros(len(q), v.shape[1])
    positions = torch.arange(start, start + len(q))[:, None]
    first = -tile
    while first + tile < len(k):
        if first + tile >= start + len(q):
            continue
        first += tile
        keys, values = k[first : first + tile], v[first : first + tile]
        scores = q @ keys.T / math.sqrt(q.shape[1])
        scores = scores.masked_fill(torch.arange(first, first + len(keys)) > positions, -math.inf)
        highest = torch.maximum(maximum, scores.amax(1, keepdim=True))
        weights = (scores - highest).exp()
        old = (maximum - highest).exp()
        total = total * old + weights.sum(1, keepdim=True)
        output = output * old + weights @ values
        maximum = highest
    return output / total, (maximum + total.log())[:, 0]


@wrong("flash_column", "values", "left out where it begins before the first key")
def leaves_out_a_cut_tile(k, v, q, dout, lse, delta, start, tile):
    dk, dv = torch.zeros_like(k), torch.zeros_like(v)
    positions = torch.arange(start, start + len(k))
    for first in range(-(-start // tile) * tile, len(q), tile):
        rows = slice(first, first + tile)
        queries = q[rows]
        scores = queries @ k.T / math.sqrt(q.shape[1])
        hidden = positions > torch.arange(first, first + len(queries))[:, None]
        weights = (scores - lse[rows, None]).exp().masked_fill(hidden, 0)
        dv += weights.T @ dout[rows]
        to_weights = dout[rows] @ v.T
        to_scores = weights * (to_weights - delta[rows, None])
        dk += to_scores.T @ queries / math.sqrt(q.shape[1])
    return dk, dv


@wrong("mended_flash", "values", "The first query stands beside the first key here")
def counts_from_the_first_key(q, k, v, tile):
    out = torch.zeros(len(q), v.shape[1])
    for start in range(0, len(q), tile):
        queries = q[start : start + tile] / math.sqrt(q.shape[1])
        size = len(queries)
        positions = torch.arange(start, start + size)[:, None]
        maximum = torch.full((size, 1), -math.inf)
        total, output = torch.zeros(size, 1), torch.zeros(size, v.shape[1])
        for first in range(0, len(k), tile):
            if first > positions[-1]:
                break
            keys, values = k[first : first + tile], v[first : first + tile]
            scores = queries @ keys.T
            scores = scores.masked_fill(torch.arange(first, first + len(keys)) > positions, -math.inf)
            highest = torch.maximum(maximum, scores.amax(1, keepdim=True))
            unit = highest.masked_fill(highest == -math.inf, 0)
            weights = (scores - unit).exp()
            old = (maximum - unit).exp()
            total = total * old + weights.sum(1, keepdim=True)
            output = output * old + weights @ values
            maximum = highest
        out[start : start + tile] = output / total.clamp(min=1)
    return out


@wrong("flash_row", "own work", "you call torch's scaled_dot_product_attention")
def a_mask_that_torch_refuses(q, k, v, start, tile):
    seen = torch.arange(len(k)) <= torch.arange(start, start + len(q))[:, None]
    output = F.scaled_dot_product_attention(q, k, v, attn_mask=seen.long())
    return output, (q @ k.T).logsumexp(1)
