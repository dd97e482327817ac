"""The flags of a run, for a model, a cluster and a goal, by what the library's own cost model says of them."""

from itertools import product
from math import inf, isclose

from tinydist.lab.author import Malformed, Own, Target, Wrong, alone, exercise, mistake
from tinydist.planner import find_model

from .prices import CHOICES, Price, prices


def case(goal, model="Llama 3 8B", node="H100 node", counts=(8, 16, 32), limit=inf, room=80e9, just=""):
    """``just``: the "room", or the "limit", is what ``SHARDED`` takes on 16 GPUs."""

    def arguments():
        of, its = Price(prices(model, node, BATCH, counts)), find_model(model)
        sizes = {"layers": its.layers, "heads": its.heads, "global batch": BATCH}
        seconds, nbytes = of.tells(16, SHARDED) if just else (limit, room)
        return of, list(counts), sizes, nbytes if just == "room" else room, goal, seconds if just == "limit" else limit

    within = f" within {limit:.3g} s a step" * (limit != inf) + f", and one has just the {just}" * bool(just)
    about = f"{model}, {' or '.join(map(str, counts))} GPUs of {room / 1e9:.3g} GB, {node}s: {goal}{within}"
    return alone(arguments, about)


def test_cases():
    yield case("fastest", "GPT-2 XL", counts=(2, 4, 8))
    yield case("fastest")
    yield case("fastest", node="A100 node", counts=(16, 8))
    yield case("fastest", counts=(16,), just="room")
    yield case("smallest")
    yield case("smallest", limit=4.0)
    yield case("cheapest", limit=3.0)
    yield case("cheapest", counts=(32, 16, 8), limit=9.0, room=40e9)
    yield case("fastest", "Llama 3 70B", counts=(64, 32))
    yield case("smallest", "Llama 3 70B", counts=(64,), limit=10.0)
    yield case("smallest", "Llama 3 70B", counts=(64,))
    yield case("cheapest", "Llama 3 70B", counts=(8, 16))
    yield case("smallest", counts=(16,), just="limit")


class Flags(Target):
    name, decides = "flags", True

    def judge(self, exercise, trial, right):
        got, of = trial.returned[0], trial.arguments[0][0]
        if got is None:
            return
        if not isinstance(got, tuple | list) or len(got) != 2 or isinstance(got[0], str):
            raise Malformed(f"it returned {got!r}, where (GPUs, flags) is right, or None")
        try:
            of.tells(*got)
        except (ValueError, TypeError, AttributeError) as error:
            raise Malformed(f"with {got[0]!r} GPUs and {got[1]!r}: {error}") from None


class Goal(Target):
    name, decides = "goal", True

    def judge(self, exercise, trial, right):
        (of, _, _, room, goal, limit), its = trial.arguments[0], right.returned[0]
        if of.refused:
            raise Wrong(f"{len(of.refused)} of the jobs that it prices are refused, the first: {of.refused[0]}")
        if trial.returned[0] is None:
            if its is not None:
                raise Wrong(f"it says that there is nothing, but there is: {its[0]} GPUs with {its[1]}")
            return
        gpus, flags = trial.returned[0]
        seconds, nbytes = of.tells(gpus, flags)
        chosen = f"{gpus} GPUs with {flags}: {seconds:.4g} s a step and {nbytes / 1e9:.4g} GB"
        if nbytes > room:
            raise Wrong(f"{chosen}, and each has {room / 1e9:.4g} GB: it does not fit")
        if seconds > limit:
            raise Wrong(f"{chosen}, and a step may take {limit:.4g} s")
        mine, best = (cost(goal, each[0], *of.tells(*each)) for each in (trial.returned[0], its))
        if mine > best and not isclose(mine, best):
            raise Wrong(f"{chosen}. There is a way that is {mine / best:.4g} times as good for {goal!r}")

    def seen(self, trial):
        """And of what it has asked the price: what is never tried is known."""
        if trial.error:
            return None
        got, of = trial.returned[0], trial.arguments[0][0]
        return of.asked, "nothing" if got is None else (got[0], *of.tells(*got))

    def general(self, trial, right):
        (of, gpus, *_), best = trial.arguments[0], right.returned[0]
        if of.refused:  # which is told, and may be all that is wrong
            return ""
        others = set(gpus) - {count for count, _ in of.asked}
        if others:
            return f"{max(others)} GPUs are never tried"
        tried = [set(values) for values in zip(*(flags for _, flags in of.asked))]
        for (name, values), those in zip(CHOICES.items(), tried):
            missing = [each for each in values if each not in those]
            if missing:
                flag, value = f"--{name.replace('_', '-')}", missing[-1]
                return (
                    f"{flag}{f' {value}' * (type(value) in (int, str))} is never tried"
                    if value
                    else (f"It is never tried without {flag}")
                )
        return "It asks the price of one that is right, and does not choose it" * (best is not None and of.knows(*best))


def cost(goal, gpus, seconds, nbytes):
    return {"fastest": seconds, "smallest": nbytes, "cheapest": gpus * seconds}[goal]


BATCH = 64  # sequences
LEAVES = "nbytes > room or seconds > limit"
SHARDED = "--use-distributed-optimizer --tensor-model-parallel-size 2"
SIZES = "gpus, (1, 2, 4, 8), (1, 2, 4, 8), (1, 2, 4), (False, True), (False, True)"


@exercise(
    title="Flags for a goal",
    minutes=20,
    difficulty=2,
    test_cases=test_cases,
    targets=[
        Own("your own search", "price says all that is needed", ("tinydist.planner",)),
        Flags("flags of Megatron-LM that go together, for a number of GPUs that there is"),
        Goal("no job is refused; it fits, is in time, and no flags are better for the goal; None if nothing will do"),
    ],
    mistakes=[
        mistake("A step that takes just `limit` is in time", LEAVES, "nbytes > room or seconds >= limit"),
        mistake(
            "This has the fewest GPUs. The cheapest is paid for GPUs times seconds, and more GPUs may be done so much "
            "sooner that they cost less",
            '"cheapest": count * seconds',
            '"cheapest": (count, seconds)',
        ),
        mistake(
            "The smallest holds the fewest bytes on each GPU, and not on all of them together",
            '"smallest": nbytes',
            '"smallest": count * nbytes',
        ),
        mistake(
            "Recomputation is never tried. It takes a third more arithmetic, and leaves room for larger microbatches, "
            "or for fewer cuts",
            SIZES,
            "gpus, (1, 2, 4, 8), (1, 2, 4, 8), (1, 2, 4), (False, True), (False,)",
        ),
        mistake(
            "The distributed optimizer, which is ZeRO-1, is never tried. It sends as much as before, and each rank "
            "holds a part of the states",
            SIZES,
            "gpus, (1, 2, 4, 8), (1, 2, 4, 8), (1, 2, 4), (False,), (False, True)",
        ),
        mistake(
            "Microbatches are always of one sequence: larger ones make better use of a GPU",
            SIZES,
            "gpus, (1, 2, 4, 8), (1, 2, 4, 8), (1,), (False, True), (False, True)",
        ),
        mistake(
            "Layers are never cut: tensor parallel ranks have a part of each",
            SIZES,
            "gpus, (1,), (1, 2, 4, 8), (1, 2, 4), (False, True), (False, True)",
        ),
        mistake(
            "There is never a pipeline, which sends little, and holds few layers on each rank",
            SIZES,
            "gpus, (1, 2, 4, 8), (1,), (1, 2, 4), (False, True), (False, True)",
        ),
    ],
    hints=[
        "There are 192 combinations of flags for a number of GPUs. Which go together? Four numbers must divide: GPUs, "
        "heads, layers, and the global batch.",
        "Leave out what does not fit, or is too late. Keep the least of the rest: seconds, bytes, GPUs times seconds.",
        "Look at what wins. Where is a tensor group larger than one, and what takes its place when there is more room?",
    ],
    why="Flags of real systems are names for the choices of chapters 05 to 11, and what must divide says whether a "
    "job will be refused, before it waits in a queue. A cost model tries all the others in a second, where a cluster "
    "would take a day; what it proposes is then measured.",
)
def choose_flags(price, gpus, model, room, goal, limit):
    """Choose the flags of Megatron-LM for a model on a cluster. Return (GPUs, flags), or None if nothing will do.

    ``gpus`` lists how many may be rented. ``price(16, "--micro-batch-size 2 --recompute-granularity full")`` tells the
    (seconds, bytes) of a step with 16 of them, by tinydist's cost model: bytes of the fullest GPU. Where flags do not
    go together it raises ValueError, as a job is refused that has waited in a queue for hours: never ask for them.
    ``model`` has "layers", "heads" and "global batch", in sequences. The flags are a text of any of these:

    ``--tensor-model-parallel-size`` 1, 2, 4, 8; ``--pipeline-model-parallel-size`` 1, 2, 4, 8; ``--micro-batch-size``
    1, 2, 4; ``--use-distributed-optimizer``; ``--recompute-granularity full``.

    A step must fit into ``room`` bytes, and take ``limit`` seconds at most. Of those that do, the ``goal`` is the
    "fastest", with the fewest seconds; the "smallest", with the fewest bytes; or the "cheapest", with the fewest
    seconds of all GPUs together.
    """
    best = None
    # ? Which combinations are there, which go together, what does each cost, and which is best?
    for count, tp, pp, rows, shard, again in product(
        gpus, (1, 2, 4, 8), (1, 2, 4, 8), (1, 2, 4), (False, True), (False, True)
    ):
        dp, rest = divmod(count, tp * pp)
        if rest or model["heads"] % tp or model["layers"] % pp or model["global batch"] % (dp * rows):
            continue
        flags = f"--tensor-model-parallel-size {tp} --pipeline-model-parallel-size {pp} --micro-batch-size {rows}"
        flags += " --use-distributed-optimizer" * shard + " --recompute-granularity full" * again
        seconds, nbytes = price(count, flags)
        if nbytes > room or seconds > limit:
            continue
        of = {"fastest": seconds, "smallest": nbytes, "cheapest": count * seconds}[goal]
        if best is None or of < best[0]:
            best = of, count, flags
    return best[1:] if best else None
