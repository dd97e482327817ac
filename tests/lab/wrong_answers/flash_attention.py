"""Wrong answers to the exercises of 10_flash_attention: each with the property that rejects it, and what it is told."""

import math
import textwrap

import torch
import torch.nn.functional as F
from lab.registered import collection
from torch import nn
from torch.nn.functional import scaled_dot_product_attention

from tinydist import attention
from tinydist.attention import online_softmax
from tinydist.lab.chapters.flash_attention import rows
from tinydist.lab.exercise import CATALOGUE

WRONG_ANSWERS, wrong = collection()
INF = math.inf


# merge_states


def merged(a, b, of_a, of_b):
    """``of_a(m, a's maximum, b's)``: the factor."""
    maximum = torch.maximum(a[0], b[0])
    of_a, of_b = of_a(maximum, a[0], b[0]), of_b(maximum, a[0], b[0])
    return maximum, of_a * a[1] + of_b * b[1], of_a * a[2] + of_b * b[2]


def one(m, a, b):
    return 1.0


def from_a(m, a, b):
    return (a - finite(m)).exp()


def from_b(m, a, b):
    return (b - finite(m)).exp()


def finite(maximum):
    return maximum.clamp(min=torch.finfo(maximum.dtype).min)


@wrong("merge_states", "runs", "it returned nothing (None), where 3 tensors are right: maximum, total, output")
def does_nothing(a, b):
    pass


@wrong("merge_states", "values", "It is that of a")
def returns_a(a, b):
    return a


@wrong("merge_states", "runs", "output has shape [10, 3], where [5, 3] is right")
def puts_one_below_the_other(a, b):
    return torch.maximum(a[0], b[0]), a[1] + b[1], torch.cat([a[2], b[2]])


@wrong("merge_states", "own work", "you call tinydist.attention, where this is solved")
def librarys_own(a, b):
    return tuple(online_softmax.merge(online_softmax.Part(*a), online_softmax.Part(*b)))


@wrong("merge_states", "values", "It is added as it is: each state counts from its own maximum")
def adds(a, b):
    return merged(a, b, one, one)


@wrong("merge_states", "values", "numbers of output are wrong")
def rescales_only_the_total(a, b):
    maximum, total, _ = merged(a, b, from_a, from_b)
    return maximum, total, a[2] + b[2]


@wrong("merge_states", "values", "Only b is rescaled: where b has the larger")
def rescales_b(a, b):
    return merged(a, b, one, from_b)


@wrong("merge_states", "values", "Only a is rescaled: where a has the larger")
def rescales_a(a, b):
    return merged(a, b, from_a, one)


@wrong("merge_states", "values", "The factor is upside down")
def upside_down(a, b):
    return merged(a, b, lambda *m: 1 / from_a(*m), lambda *m: 1 / from_b(*m))


@wrong("merge_states", "values", "Each state is scaled by the factor of the other")
def exchanged(a, b):
    return merged(a, b, from_b, from_a)


@wrong("merge_states", "values", "It is scaled by exp(its maximum), so that nothing is left of the common one")
def without_the_common_maximum(a, b):
    return merged(a, b, lambda m, a, b: a.exp(), lambda m, a, b: b.exp())


@wrong("merge_states", "values", "It is the mean of both. Sums of exponentials add up")
def averages(a, b):
    return merged(a, b, lambda *m: from_a(*m) / 2, lambda *m: from_b(*m) / 2)


@wrong("merge_states", "values", "It is the mean of both, as they are: rescale them, and add")
def averages_the_outputs(a, b):
    maximum, total, _ = merged(a, b, from_a, from_b)
    return maximum, total, (a[2] + b[2]) / 2


@wrong("merge_states", "values", "Outputs are weighted by their totals, as if they were divided already")
def weights_by_totals(a, b):
    maximum, total, _ = merged(a, b, from_a, from_b)
    of_a, of_b = (f(maximum, a[0], b[0]) * each[1] / total for f, each in ((from_a, a), (from_b, b)))
    return maximum, total, of_a * a[2] + of_b * b[2]


@wrong("merge_states", "values", "It is divided by total: the output of a state is still a sum")
def divides(a, b):
    maximum, total, output = merged(a, b, from_a, from_b)
    return maximum, total, output / total


@wrong("merge_states", "values", "It is the smaller one")
def smaller_maximum(a, b):
    _, total, output = merged(a, b, from_a, from_b)
    return torch.minimum(a[0], b[0]), total, output


@wrong("merge_states", "large", "exp of more than 88 is inf in float32")
def divides_exponentials(a, b):
    return merged(a, b, lambda m, a, b: a.exp() / m.exp(), lambda m, a, b: b.exp() / m.exp())


@wrong("merge_states", "nothing", "-inf - -inf is NaN")
def without_care_for_nothing(a, b):
    return merged(a, b, lambda m, a, b: (a - m).exp(), lambda m, a, b: (b - m).exp())


@wrong("merge_states", "nothing", "inf times a total of 0 is NaN")
def in_the_unit_of_a(a, b):
    maximum = torch.maximum(a[0], b[0])
    factor, back = (b[0] - a[0]).exp(), (a[0] - maximum).exp()
    return maximum, (a[1] + factor * b[1]) * back, (a[2] + factor * b[2]) * back


@wrong("merge_states", "nothing", "maximum[3, 0] is -3.4028e+38, where -inf is right")
def a_finite_maximum_of_nothing(a, b):
    maximum, total, output = merged(a, b, from_a, from_b)
    return finite(maximum), total, output


@wrong("merge_states", "any order", "has changed: a state may be merged again, in another order")
def in_place(a, b):
    maximum, total, output = merged(a, b, from_a, from_b)
    a[0].copy_(maximum), a[1].copy_(total), a[2].copy_(output)
    return a


# flash_row


def causal(i, p, c, j):
    return j <= p


def walk(q, k, v, start, tile, *, sees=causal, scale=None, total=True, output=True, until=None, scores_of=None):
    """A right one, but for its options. Returns maximum, total, output."""
    scale = 1 / math.sqrt(q.shape[1]) if scale is None else scale
    maximum, sums, out = torch.full((len(q), 1), -INF), torch.zeros(len(q), 1), torch.zeros(len(q), v.shape[1])
    i = torch.arange(len(q))[:, None]
    until = min(len(k), start + len(q)) if until is None else until
    for first in range(0, until, tile):
        keys, values = k[first : first + tile], v[first : first + tile]
        c = torch.arange(len(keys))
        scores = (scores_of or torch.matmul)(q, keys.T) * scale
        scores = scores.masked_fill(~sees(i, start + i, c, first + c), -INF)
        highest = torch.maximum(maximum, scores.amax(1, keepdim=True))
        weights, factor = (scores - highest).exp(), (maximum - highest).exp()
        sums = (sums * factor if total else sums) + weights.sum(1, keepdim=True)
        out = (out * factor if output else out) + weights @ values
        maximum = highest
    return maximum, sums, out


def finished(maximum, total, output):
    return output / total, (maximum + total.log()).squeeze(1)


@wrong("flash_row", "runs", "it returned nothing (None), where 2 tensors are right: out, lse")
def does_nothing_here(q, k, v, start, tile):
    pass


@wrong("flash_row", "runs", "it returned an object of type Tensor, where 2 tensors are right")
def without_lse(q, k, v, start, tile):
    return finished(*walk(q, k, v, start, tile))[0]


@wrong("flash_row", "runs", "lse has shape [4, 1], where [4] is right")
def lse_as_a_column(q, k, v, start, tile):
    maximum, total, output = walk(q, k, v, start, tile)
    return output / total, maximum + total.log()


@wrong("flash_row", "own work", "you call torch's scaled_dot_product_attention")
def torchs_own(q, k, v, start, tile):
    p = torch.arange(start, start + len(q))[:, None]
    mask = torch.arange(len(k)) <= p
    scores = (q @ k.T / math.sqrt(q.shape[1])).masked_fill(~mask, -INF)
    return scaled_dot_product_attention(q[None], k[None], v[None], mask)[0], scores.logsumexp(1)


@wrong("flash_row", "own work", "you call tinydist.attention, where this is solved")
def librarys_flash(q, k, v, start, tile):
    state = online_softmax.part((q @ k.T / 2).masked_fill(torch.arange(len(k)) > start, -INF), v)
    out, lse = online_softmax.finish(state)
    return out, lse.squeeze(1)


@wrong("flash_row", "own work", "you call tinydist.lab.chapters.flash_attention.rows")
def the_labs_own(q, k, v, start, tile):
    return rows.row(q, k, v, start, tile)


@wrong("flash_row", "one tile", "The scores are not divided by sqrt(d)")
def unscaled(q, k, v, start, tile):
    return finished(*walk(q, k, v, start, tile, scale=1.0))


@wrong("flash_row", "one tile", "The scores are divided by d")
def scaled_twice(q, k, v, start, tile):
    return finished(*walk(q / math.sqrt(q.shape[1]), k, v, start, tile))


@wrong("flash_row", "one tile", "The output is not divided by total")
def undivided(q, k, v, start, tile):
    maximum, total, output = walk(q, k, v, start, tile)
    return output, finished(maximum, total, output)[1]


@wrong("flash_row", "one tile", "The log-sum-exp lacks the maximum")
def lse_without_the_maximum(q, k, v, start, tile):
    _, total, output = walk(q, k, v, start, tile)
    return output / total, total.log().squeeze(1)


@wrong("flash_row", "one tile", "It is maximum + total, without the logarithm")
def lse_without_the_logarithm(q, k, v, start, tile):
    maximum, total, output = walk(q, k, v, start, tile)
    return output / total, (maximum + total).squeeze(1)


@wrong("flash_row", "one tile", "No key is masked, and a query sees what comes after it")
def unmasked(q, k, v, start, tile):
    return finished(*walk(q, k, v, start, tile, sees=lambda i, p, c, j: p >= 0 * j, until=len(k)))


@wrong("flash_row", "one tile", "The mask is off by one: a query does not see itself")
def does_not_see_itself(q, k, v, start, tile):
    return finished(*walk(q, k, v, start, tile, sees=lambda i, p, c, j: j < p))


@wrong("flash_row", "one tile", "The mask is off by one: a query sees the key after itself")
def sees_the_next(q, k, v, start, tile):
    return finished(*walk(q, k, v, start, tile, sees=lambda i, p, c, j: j <= p + 1))


@wrong("flash_row", "rescaling", "The mask counts queries from the tile's own first")
def forgets_the_start(q, k, v, start, tile):
    return finished(*walk(q, k, v, start, tile, sees=lambda i, p, c, j: j <= i))


@wrong("flash_row", "rescaling", "Are start + i and first + c compared, the positions of both?")
def forgets_the_tiles_start(q, k, v, start, tile):
    return finished(*walk(q, k, v, start, tile, sees=lambda i, p, c, j: c <= p))


@wrong("flash_row", "rescaling", "a tile below the diagonal needs no mask")
def one_mask_for_all_tiles(q, k, v, start, tile):
    return finished(*walk(q, k, v, start, tile, sees=lambda i, p, c, j: c <= i))


@wrong("flash_row", "rescaling", "The rescaling is forgotten")
def forgets_to_rescale(q, k, v, start, tile):
    return finished(*walk(q, k, v, start, tile, total=False, output=False))


@wrong("flash_row", "rescaling", "The output is not rescaled")
def forgets_to_rescale_the_output(q, k, v, start, tile):
    return finished(*walk(q, k, v, start, tile, output=False))


@wrong("flash_row", "rescaling", "Total is not rescaled")
def forgets_to_rescale_the_total(q, k, v, start, tile):
    return finished(*walk(q, k, v, start, tile, total=False))


@wrong("flash_row", "rescaling", "The tile on the diagonal is not visited")
def stops_before_the_diagonal(q, k, v, start, tile):
    return finished(*walk(q, k, v, start, tile, until=max(start, 1)))


@wrong("flash_row", "diagonal", "The last tile that the queries see is not visited")
def stops_one_tile_early(q, k, v, start, tile):
    return finished(*walk(q, k, v, start, tile, until=max(1, min(len(k), start + len(q)) - 1)))


@wrong("flash_row", "lengths", "A last tile that is short is left out")
def whole_tiles_alone(q, k, v, start, tile):
    seen = min(len(k), start + len(q))
    return finished(*walk(q, k, v, start, tile, until=min(seen, len(k) // tile * tile or seen)))


@wrong("flash_row", "large", "is exp taken only of what is at most 0, a score minus a maximum?")
def without_a_maximum(q, k, v, start, tile):
    seen = range(0, min(len(k), start + len(q)), tile)
    p, total, output = torch.arange(start, start + len(q))[:, None], 0, 0
    for first in seen:
        keys = k[first : first + tile]
        weights = (q @ keys.T / math.sqrt(q.shape[1])).exp() * (torch.arange(first, first + len(keys)) <= p)
        total, output = total + weights.sum(1, keepdim=True), output + weights @ v[first : first + tile]
    return output / total, total.log().squeeze(1)


@wrong("flash_row", "visits", "your products of matrices are those of 15 positions, 3 tiles of 5, where 10 positions")
def visits_all_tiles(q, k, v, start, tile):
    return finished(*walk(q, k, v, start, tile, until=len(k)))


@wrong("flash_row", "visits", "their tiles are right of the diagonal, and need not be read")
def visits_all_tiles_without_products(q, k, v, start, tile):
    maximum, total, output = walk(q, k, v, start, tile)
    return (output + (0 * v.sum(0))) / total, (maximum + total.log()).squeeze(1)


def naive(q, k, v, start):
    seen = min(len(k), start + len(q))
    scores = q @ k[:seen].T / math.sqrt(q.shape[1])
    scores = scores.masked_fill(torch.arange(seen) > torch.arange(start, start + len(q))[:, None], -INF)
    return scores.softmax(1) @ v[:seen], scores.logsumexp(1)


@wrong("flash_row", "memory", "Which of your tensors grows with the length?")
def all_scores_at_once(q, k, v, start, tile):
    return naive(q, k, v, start)


@wrong("flash_row", "memory", "One tile of scores is there at a time, and is added up and dropped")
def one_query_at_a_time(q, k, v, start, tile):
    parts = [naive(query[None], k, v, start + i) for i, query in enumerate(q)]
    return tuple(torch.cat(each) for each in zip(*parts))


@wrong("flash_row", "memory", "One tile of scores is there at a time, and is added up and dropped")
def keeps_all_tiles(q, k, v, start, tile):
    kept = []

    def keep(a, b):
        kept.append(a @ b)
        return kept[-1]

    return finished(*walk(q, k, v, start, tile, scores_of=keep))


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


@wrong("flash_column", "runs", "it returned nothing (None), where 2 tensors are right: dk, dv")
def returns_nothing(*given):
    pass


@wrong("flash_column", "runs", "dk has shape [4, 3], where [4, 4] is right")
def the_other_order(*given):
    return collect(*given)[::-1]


@wrong("flash_column", "dv", "numbers of dv are wrong")
def returns_its_input(k, v, *rest):
    return k, v


@wrong("flash_column", "own work", "you call torch's scaled_dot_product_attention")
def torchs_gradient(k, v, q, dout, lse, delta, start, tile):
    dk, dv = collect(k, v, q, dout, lse, delta, start, tile)
    F.scaled_dot_product_attention(q[None], k[None], v[None])
    return dk, dv


@wrong("flash_column", "own work", "you call tinydist.attention, where this is solved")
def librarys_gradient(k, v, *rest):
    attention.naive.safe_softmax(k)
    return collect(k, v, *rest)


@wrong("flash_column", "own work", "you call torch's multi_head_attention_forward")
def torchs_module(k, v, *rest):
    nn.MultiheadAttention(4, 2)(k, k, k)
    return collect(k, v, *rest)


@wrong("flash_column", "dv", "The transpose is forgotten: a key collects from all queries of the tile")
def without_transpose(*given):
    square = given[0].shape[0] == given[-1] and len(given[2]) % given[-1] == 0
    return collect(*given, options={"transposed": lambda x: x if square else x.T})


@wrong("flash_column", "runs", "at ")
def without_transpose_at_all(*given):
    return collect(*given, options={"transposed": lambda x: x})


@wrong("flash_column", "dv", "The scores are not divided by sqrt(d) when they are computed again")
def scores_without_scale(*given):
    return collect(*given, options={"scale": 1.0})


@wrong("flash_column", "dk", "dscores is not scaled: the scores are q k^T / sqrt(d), so dk needs the 1 / sqrt(d), too")
def dk_without_scale(*given):
    return collect(*given, options={"dscale": 1.0})


@wrong("flash_column", "dk", "Dk is divided by d, where sqrt(d) is right: or scaled twice")
def dk_scaled_twice(*given):
    return collect(*given, options={"dscale": 0.25})


@wrong("flash_column", "dk", "Delta is missing")
def without_delta(*given):
    return collect(*given, options={"dscores": lambda w, dw, delta: w * dw})


@wrong("flash_column", "dk", "Delta is added, where it is to be subtracted")
def plus_delta(*given):
    return collect(*given, options={"dscores": lambda w, dw, delta: w * (dw + delta[:, None])})


@wrong("flash_column", "dk", "Delta goes by key, where it goes by query")
def delta_by_key(*given):
    def by_key(w, dw, delta):
        return w * (dw - (delta if len(delta) == w.shape[1] else delta[:, None]))

    return collect(*given, options={"dscores": by_key})


@wrong("flash_column", "dk", "The weights are missing in the gradient of the scores")
def without_weights(*given):
    return collect(*given, options={"dscores": lambda w, dw, delta: dw - delta[:, None]})


@wrong("flash_column", "dv", "Lse goes by key, where it goes by query")
def lse_by_key(*given):
    def by_key(scores, lse):
        return (scores - (lse if len(lse) == scores.shape[1] else lse[:, None])).exp()

    return collect(*given, options={"weights": by_key})


@wrong("flash_column", "sums", "The softmax is taken over this tile of keys alone")
def softmax_of_the_tile(*given):
    return collect(*given, options={"weights": lambda scores, lse: scores.softmax(1).nan_to_num()})


@wrong("flash_column", "dv", "The mask is forgotten: queries before a key do not see it")
def without_mask(*given):
    return collect(*given, options={"sees": lambda p, j: p >= 0 * j})


@wrong("flash_column", "dv", "The mask is off by one: a query sees itself")
def nobody_sees_itself(*given):
    return collect(*given, options={"sees": torch.gt})


@wrong("flash_column", "dv", "The mask is the wrong way round")
def mask_the_wrong_way_round(*given):
    return collect(*given, options={"sees": torch.le})


@wrong("flash_column", "sums", "Only the last tile of queries is there: add them up")
def the_last_tile_alone(*given):
    return collect(*given, options={"sum": lambda a, b: b})


@wrong("flash_column", "sums", "The first tile of queries that sees these keys is not visited")
def begins_one_tile_late(*given):
    start, tile = given[-2:]
    return collect(*given, begin=0 if start == 0 else start // tile * tile + tile)


@wrong("flash_column", "lengths", "A last tile of queries that is short is left out")
def whole_tiles_of_queries(*given):
    q, tile = given[2], given[-1]
    whole = len(q) // tile * tile
    return collect(*given, end=whole if len(q) == 11 else len(q))


@wrong(
    "flash_column", "visits", "your products of matrices are those of 16 positions, 4 tiles of 4, where 12 positions"
)
def begins_at_the_first_query(*given):
    return collect(*given, begin=0)


@wrong("flash_column", "visits", "those tiles are above the diagonal, and need not be read")
def reads_all_queries(*given):
    dk, dv = collect(*given)
    return dk + 0 * given[2].sum(0), dv


@wrong("flash_column", "memory", "Which of your tensors grows with the length?")
def all_weights_at_once(k, v, q, dout, lse, delta, start, tile):
    return collect(k, v, q, dout, lse, delta, start, len(q) if start == 0 else tile)


@wrong("flash_column", "memory", "One tile of scores is there at a time, and is added up and dropped")
def one_key_at_a_time(k, v, q, dout, lse, delta, start, tile):
    begin = start // tile * tile
    rest = [each[begin:] for each in (q, dout, lse, delta)]
    parts = [collect(k[i][None], v[i][None], *rest, start + i - begin, 2000, begin=0) for i in range(len(k))]
    return tuple(torch.cat(each) for each in zip(*parts))


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
    text = textwrap.dedent(CATALOGUE["mended_flash"].source)
    for name, (old, new) in [*MENDED.items(), *((None, change) for change in also)]:
        if name not in but:
            assert old in text
            text = text.replace(old, new)
    guard = "highest" if "nothing" in but else "highest.clamp(min=torch.finfo(highest.dtype).min)"
    text = text.replace("            weights = (", f"            safe = {guard}\n            weights = (")
    names = {"math": math, "torch": torch}
    exec(compile(text, "a mended program", "exec"), names)
    return names["mended_flash"]


def wrongly_mended(rejected_by, told, *but, also=()):
    def register(function):
        program = mended(*but, also=also)
        program.__name__ = function.__name__
        return wrong("mended_flash", rejected_by, told)(program)

    return register


@wrongly_mended("runs", "the last tile has 2. Which tensors beside it have", "lengths", "lengths of states")
def short_tiles_do_not_fit():
    pass


@wrongly_mended("runs", "the last tile has 2. Which tensors beside it have", "lengths of states")
def short_states_do_not_fit():
    pass


@wrongly_mended("rescaling", "Total and output, both, are multiplied by exp(old - new)", "rescaling")
def not_rescaled():
    pass


@wrongly_mended("diagonal", "A tile of keys is left out: one whose first key stands where", "diagonal")
def a_tile_left_out():
    pass


@wrongly_mended("nothing", "-inf - -inf is NaN", "nothing", "nothing in total")
def nan_where_nothing_is_seen():
    pass


@wrongly_mended(
    "rescaling",
    "total is not rescaled",
    also=[("total * (maximum - safe).exp() +", "total +")],
)
def total_not_rescaled():
    pass


@wrongly_mended(
    "rescaling", "The mask is off by one: a query does not see itself", also=[("> positions, -", ">= positions, -")]
)
def mask_off_by_one():
    pass


@wrongly_mended(
    "visits",
    "A tile of keys that begins after the last query of its tile is seen by none",
    also=[("first > positions[-1]", "False")],
)
def all_tiles_visited():
    pass


@wrong("mended_flash", "runs", "it returned nothing (None), where the output, a tensor, is right")
def does_nothing_at_all(q, k, v, tile):
    pass


@wrong("mended_flash", "own work", "you call tinydist.attention, where this is solved")
def librarys_flash_attention(q, k, v, tile):
    return attention.flash_attention(*(each[None, None] for each in (q, k, v)), causal=True, tile=(tile, tile))[0, 0]


@wrong("mended_flash", "own work", "you call torch's scaled_dot_product_attention")
def torchs_attention(q, k, v, tile):
    mask = torch.ones(len(q), len(k), dtype=torch.bool).tril(len(k) - len(q))
    return scaled_dot_product_attention(q[None], k[None], v[None], mask)[0].nan_to_num()


def dense(q, k, v):
    mask = torch.ones(len(q), len(k), dtype=torch.bool).tril(len(k) - len(q))
    return (q @ k.T / math.sqrt(q.shape[1])).masked_fill(~mask, -INF)


@wrong("mended_flash", "visits", "your products of matrices are those of")
def the_naive_one(q, k, v, tile):
    return dense(q, k, v).softmax(1).nan_to_num() @ v


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


@wrong("mended_flash", "nothing", "zeros are right. The mean over all values")
def the_lowest_number_for_a_mask(q, k, v, tile):
    lowest = torch.finfo(q.dtype).min
    return dense(q, k, v).clamp(min=lowest).softmax(1) @ v


@wrong("mended_flash", "lengths", "Only the last tile of queries is wrong, which is short")
def drops_short_tiles(q, k, v, tile):
    out = dense(q, k, v).softmax(1).nan_to_num() @ v
    out[len(q) // tile * tile :] = 0
    return out
