"""The forward pass of flash attention as a Triton kernel, judged by its output and by what each program loads."""

import math
from collections import Counter

import torch

from tinydist.lab.author import Own, Target, Values, Wrong, alone, exercise, mistake
from tinydist.lab.triton_answers import guarded, run_kernel, tl, unavailable

from .chapter import BY_HAND
from .kernel_reasons import RESCALED, UNTOUCHED, WHY

LIBRARYS = ("tinydist.attention.flash_triton", "tinydist.attention.kernels.forward", "tinydist.attention.kernels.tiles")


def case(about, queries, keys, tile, causal=False, d=16, size=1.0, low=False):
    """``tile``: of queries, of keys. ``size``: of the scores, some units; ``low``: all are near -300."""

    def given():
        generator = torch.Generator().manual_seed(1)
        q, k, v = (torch.randn(rows, d, generator=generator) for rows in (queries, keys, keys))
        q *= 2 * size
        if low:
            q[:, 0], k[:, 0] = -40, 30 * math.sqrt(d) / 4
        return q, k, v, causal, *tile

    where = f"{queries} queries, {keys} keys, tiles of {tile[0]} and {tile[1]}, {'causal' if causal else 'no mask'}"
    return alone(given, f"{where} ({about})", rtol=2e-2 if low else 1e-4)  # low ones are rounded at 1200


def test_cases():
    yield case("one tile", 16, 16, (16, 16))
    yield case("three tiles of keys", 16, 48, (16, 16))
    yield case("the last tile of keys is short", 16, 40, (16, 16))
    yield case("the last tile of queries is short", 40, 48, (16, 16), d=32)
    yield case("tiles that are not square", 70, 50, (32, 16))
    yield case("scores of some hundreds: exp of more than 88 is inf", 16, 48, (16, 16), size=100.0)
    yield case("scores near -300, with a short last tile: exp of less than -104 is 0", 16, 40, (16, 16), low=True)
    yield case("the diagonal goes through the corners of tiles", 48, 48, (16, 16), causal=True)
    yield case("short last tiles", 44, 44, (16, 16), causal=True)
    yield case("more queries than keys in a tile", 70, 70, (32, 16), causal=True)
    yield case("fewer queries than keys in a tile", 70, 70, (16, 32), causal=True)
    yield case("the last query stands beside the last key", 20, 50, (16, 16), causal=True)
    yield case("the last tile that program 0 needs has one key", 20, 37, (16, 16), causal=True)


def started(answer, q, k, v, causal, M, N):
    """On a grid of a program for each tile of queries. The output, with the record of the programs."""
    (q, _), (k, _), (v, _) = map(guarded, (q, k, v))
    out, around = guarded(torch.full_like(q, UNTOUCHED))
    (T, D), S = q.shape, len(k)
    sizes = {"T": T, "S": S, "scale": 1 / math.sqrt(D), "causal": causal, "D": D, "M": M, "N": N}
    loaded = {"q": q, "k": k, "v": v, "out": out}
    record = run_kernel(answer, -(-T // M), q, k, v, out, loaded=loaded, **sizes)
    for load in record.loads:
        if load.rows.stop > len(loaded[load.name]):
            raise Wrong(
                f"program {load.program[0]} loads rows {load.rows.start} to {load.rows.stop - 1} of {load.name}, which "
                f"has {len(loaded[load.name])}: the last tile may be short, so the load needs a mask, "
                f"{'rows < T' if load.name == 'q' else 'columns < S'}"
            )
    if not all(rows.isnan().all() for rows in around):
        raise Wrong("it stores beyond the last query: the last tile may be short, so the store needs a mask, rows < T")
    out.record = record
    return out


class Loads(Target):
    """Each program loads the tiles that the reference's loads, each once, and stores its output once."""

    name = "loads"

    def seen(self, trial):
        return None if trial.error is not None else counted(trial.returned[0].record.loads)

    def judge(self, exercise, trial, right):
        mine, its = self.seen(trial), self.seen(right)
        for program, name, *_ in mine:
            if name == "out":
                raise Wrong(
                    f"program {program} loads its output from out: keep it in fast memory until it is complete, and "
                    "store it once"
                )
        for (program, name, start, stop, _), times in sorted(mine.items()):
            if times > 1:
                raise Wrong(
                    f"program {program} loads rows {start} to {stop - 1} of {name} {times} times: one that is loaded "
                    "stays in fast memory, so load each once"
                )
        nbytes, enough = ({n: total(each, n) for n in "qkv"} for each in (mine, its))
        for name in "qkv":
            if nbytes[name] > enough[name]:
                raise Wrong(
                    f"all programs together load {nbytes[name]:,} bytes of {name}, where {enough[name]:,} are enough. "
                    f"{extra(mine - its)}"
                )
        stored, once = (sum(nbytes for _, nbytes in each.returned[0].record.stores) for each in (trial, right))
        if stored > once:
            raise Wrong(
                f"all programs together store {stored:,} bytes, where the output has {once:,}: store a tile of it "
                "once, when it is complete"
            )


def counted(loads):
    return Counter((load.program[0], load.name, load.rows.start, load.rows.stop, load.nbytes) for load in loads)


def total(loads, name):
    return sum(key[4] * times for key, times in loads.items() if key[1] == name)


def extra(loads):
    program, name, start, stop, _ = min(loads)
    return f"Program {program} loads rows {start} to {stop - 1} of {name}, which it does not need"


STOP = "        stop = tl.minimum(S, (tl.program_id(0) + 1) * M + S - T)"
HIGHER = "tl.maximum(maximum, tl.max(scores, 1))"
SEEN = "columns[None, :] <= rows[:, None] + S - T"
KEYS = "        keys = tl.load(k + at, mask=inside, other=0.0)\n"


@exercise(
    title="A flash attention kernel",
    minutes=30,
    difficulty=4,
    test_cases=test_cases,
    program=started,
    unavailable=unavailable,
    targets=[
        Own("not the library's kernels", BY_HAND, LIBRARYS),
        Values(
            "attention, without a mask and causal; short last tiles, tiles that are not square; more keys than "
            "queries; scores of some hundreds, and of -300",
            explain=WHY,
        ),
        Loads(
            "each program loads its queries once, and each tile of K and V once that its queries see; nothing behind "
            "the diagonal. Its output is stored once"
        ),
    ],
    mistakes=[
        mistake(
            "There is no running maximum: exp of a large score is inf, and of a low one 0. Subtract the largest score "
            "so far before exp",
            HIGHER,
            "tl.zeros([M], tl.float32)",
        ),
        mistake(
            f"The rescaling is forgotten: {RESCALED}. Multiply total and output by exp(old - new)",
            "total * shrink",
            "total",
            "output * shrink[:, None]",
            "output",
        ),
        mistake(f"The output is not rescaled: {RESCALED}", "output * shrink[:, None]", "output"),
        mistake(
            "The output is not divided: it is the sum of weights times values, so divide by the total, once, before "
            "the store",
            "output / total[:, None]",
            "output",
        ),
        mistake(
            "The mask is off by one: a query does not see the key beside it. Query row stands beside key row + S - T, "
            "and sees that, too",
            SEEN,
            SEEN.replace("<=", "<"),
        ),
        mistake(
            "Keys beyond the last count: they are loaded as zeros, and exp(0) is 1. Give them a score of -inf",
            "seen = (columns < S)[None, :]",
            "seen = (columns < S + N)[None, :]",
        ),
        mistake(
            "A tile is read twice: load the keys and the values once, and use them where you need them",
            KEYS,
            KEYS + KEYS,
        ),
        mistake(
            "The mask hides tiles that are loaded all the same: a causal program stops after the last key that its "
            "last query sees",
            STOP,
            "        stop = S",
        ),
    ],
    hints=[
        "Write it without the causal mask first, for one tile of keys. The notebook's lse_kernel has the addresses, "
        "the maximum and the total; what is missing is the output, [M, D].",
        "When a tile brings a larger maximum, total and output shrink by the same factor, exp(old maximum - new). Then "
        "the tile's weights are added to total, and tl.dot(weights, values) to output.",
        "Query i stands beside key i + S - T. So the last query of this program, (program + 1) * M - 1, sees the keys "
        "before (program + 1) * M + S - T, and there are no more than S.",
        'tl.where(seen, scores, float("-inf")) hides keys beyond the last, columns >= S, and later ones. At the end '
        "output / total[:, None] is stored, where rows < T.",
    ],
    why="The same text, compiled, is a kernel for a GPU, where each program is a thread block on an SM. What you saw "
    "of its loads in the interpreter is what L2 will be asked for, so a tile that is read twice or behind the diagonal "
    "is traffic on any GPU.",
)
def flash_kernel(q, k, v, out, T, S, scale, causal: tl.constexpr,
                 D: tl.constexpr, M: tl.constexpr, N: tl.constexpr):  # fmt: skip
    """Write a Triton kernel: attention of one tile of queries, with the scores of one tile of keys at a time.

    q and out are addresses of [T, D] numbers, k and v of [S, D], all float32 and contiguous. Program p computes the
    output of the queries from p M on, and there are ceil(T / M) programs; keys come in tiles of N. Scores are q k^T
    times ``scale``. If ``causal``, query i sees the keys up to i + S - T, and S is at least T. The last tile of queries
    and that of keys may be short: mask what you load and store. The check decorates the function with ``triton.jit``
    and starts it on sizes from 16 to 70, with D of 16 and 32, M and N of 16 and 32.
    """
    rows = tl.program_id(0) * M + tl.arange(0, M)
    width = tl.arange(0, D)[None, :]
    # ? Load the queries, once. What is known before the first tile of keys?
    # ? Up to which key do you go? Which keys are masked, beyond the end and by the causal mask?
    # ? What happens to the total and the output when a tile brings a larger maximum? What is stored?
    queries = tl.load(q + rows[:, None] * D + width, mask=(rows < T)[:, None], other=0.0)
    maximum = tl.full([M], float("-inf"), tl.float32)
    total = tl.zeros([M], tl.float32)
    output = tl.zeros([M, D], tl.float32)
    stop = S
    if causal:
        stop = tl.minimum(S, (tl.program_id(0) + 1) * M + S - T)
    for start in range(0, stop, N):
        columns = start + tl.arange(0, N)
        at, inside = columns[:, None] * D + width, (columns < S)[:, None]
        keys = tl.load(k + at, mask=inside, other=0.0)
        values = tl.load(v + at, mask=inside, other=0.0)
        seen = (columns < S)[None, :]
        if causal:
            seen = seen & (columns[None, :] <= rows[:, None] + S - T)
        scores = tl.where(seen, tl.dot(queries, tl.trans(keys)) * scale, float("-inf"))
        higher = tl.maximum(maximum, tl.max(scores, 1))
        weights = tl.exp(scores - higher[:, None])
        shrink = tl.exp(maximum - higher)
        total = total * shrink + tl.sum(weights, 1)
        output = output * shrink[:, None] + tl.dot(weights, values)
        maximum = higher
    tl.store(out + rows[:, None] * D + width, output / total[:, None], mask=(rows < T)[:, None])
