"""A design: the least bubble that a memory budget allows, where backward may be split."""

from tinydist.lab.author import Wrong, exercise, mistake
from tinydist.pipeline_parallel import Costs, analyze
from tinydist.pipeline_parallel.schedule import BACKWARD

from .choices import first_worse
from .schedules import OWN, Held, OfSchedule, Verified, asked, drawn, setting

AMPLE = [(3, 6, 3), (2, 6, 2), (4, 8, 4), (5, 7, 6), (1, 3, 1), (5, 11, 5)]  # ranks, microbatches, budget
TIGHT = [(4, 12, 2), (4, 8, 1), (3, 12, 2)]
ROOM = 1.25  # times the lower bound, where the budget is tight
COSTS = Costs(1, 1, 1)


def test_cases():
    for ranks, microbatches, budget in AMPLE + TIGHT:
        yield setting(ranks, microbatches, budget=budget)


def lower_bound(ranks, microbatches, budget):
    """Seconds that no schedule can beat. Work: the last rank begins when a microbatch has come down, and has 3 s for
    each. Memory: of budget + 1 in a row on a rank, one is released before the last begins; on its way down and back it
    takes 2 s on each later rank, then 1 s for W. And the last microbatch's way is still to go."""
    groups, more = divmod(microbatches - 1, budget)
    bounds = []
    for rank in range(ranks):
        way = 2 * (ranks - rank)
        bounds += [rank + 3 * microbatches, rank + groups * (way + 1) + more + way + rank + 1]
    return max(bounds)


class Least(OfSchedule):
    """``room``: times the lower bound."""

    def __init__(self, name, holds, sizes, room=1):
        super().__init__(holds)
        self.name, self.sizes, self.room = name, sizes, room

    def look(self, mine, its, *size):
        bound, analysis = lower_bound(*size), analyze(mine, COSTS)
        if size in self.sizes and analysis.makespan > self.room * bound + 1e-6:
            what = "the lower bound is" if self.room == 1 else f"{self.room} times the lower bound, {bound} s, is"
            raise Wrong(
                f"with F = I = W = 1 s it takes {analysis.makespan:g} s, where {what} {self.room * bound:g} s: "
                f"{100 * analysis.bubble:.0f} % of it is idle. {self.reason(mine, analysis, size[-1])}",
                drawn(mine, COSTS),
            )

    def reason(self, mine, analysis, budget):
        if any(action.kind == BACKWARD for program in mine.programs for action in program):
            return (
                "There are whole backwards: while B computes the gradients of the weights, the rank before waits for "
                "that of its output. I and W are B in two halves, and W can wait"
            )
        return first_worse(mine, analysis, budget)


class Budget(Held):
    name = "budget"

    def most(self, its, ranks, microbatches, budget):
        return [budget] * ranks


CHOICE = "            if kind:\n                if r == rank:"
W = """            elif done["W"] < done["I"]:
                kind = "W"  # nobody waits for it: it fills what would be idle
"""


@exercise(
    title="Design: the least bubble under a memory budget",
    minutes=40,
    difficulty=5,
    test_cases=test_cases,
    program=asked("FBIW"),
    targets=[
        OWN,
        Verified("every rule of the verifier; one stage per rank"),
        Budget(
            "no rank holds more than `budget` activations, each from F to W (or to a whole B)", "where the budget is {}"
        ),
        Least(
            "least",
            f"the lower bound (P-1) + 3M seconds, for (P, M, budget) = {', '.join(map(str, AMPLE))}",
            AMPLE,
        ),
        Least(
            "tight",
            f"at most {ROOM} times the lower bound, for {', '.join(map(str, TIGHT))}: every `budget` microbatches take "
            "2P + 1 seconds, down, back and W",
            TIGHT,
            ROOM,
        ),
    ],
    mistakes=[
        mistake(
            "I comes before F, and the next rank waits for F: as long as there is room, F is first",
            CHOICE,
            '            if in_flight and gradient_is_there:\n                kind = "I"\n' + CHOICE,
        ),
        mistake(
            "W comes before F and I: other ranks wait for these, and none for W, which fills what would be idle",
            CHOICE,
            '            if done["W"] < done["I"]:\n                kind = "W"\n' + CHOICE,
        ),
        mistake(
            "As many microbatches as the budget holds are between F and I: more than min(P - rank, budget) are not "
            "back earlier, and fill the memory",
            "and in_flight < min(ranks - r, budget)",
            "and True",
        ),
        mistake(
            "One microbatch at a time is between F and I: the ranks wait for one another",
            "and in_flight < min(ranks - r, budget)",
            "and in_flight < 1",
        ),
        mistake("Nothing looks at the budget: a microbatch is held from F to W", "and held < budget", "and True"),
        mistake(
            "W is left to the end: so the budget is full, and all ranks stand still",
            W,
            W.replace('< done["I"]', '< done["I"] == microbatches'),
            'while did[rank]["W"] < microbatches:',
            "for _ in range(8 * ranks * microbatches):",
        ),
        mistake(
            "There is no W: I leaves the weight gradients to it",
            'yield f"{r}{kind}{done[kind]}"',
            'yield from [f"{r}{kind}{done[kind]}"] * (kind != "W")',
        ),
    ],
    hints=[
        "The lower bound: the last rank cannot begin before P-1 s, and has 3M s of work. So it must never wait once it "
        "has begun: every forward must be there in time.",
        "Which of the three does another rank wait for? The next one for F, the one before for I, nobody for W. So W "
        "fills what would be idle.",
        "As many microbatches between F and I as in 1F1B, min(P - rank, budget), keep all later ranks busy; more only "
        "fill the memory. And between F and W there may be no more than the budget. As long as both hold, F goes "
        "before I: the next rank waits for it.",
        "Of each rank you know how many of F, I and W it did: which two differences are to stay below which limits, "
        "before it does an F? If it cannot, does an I come in question; and if not that, a W?",
    ],
    why="With a budget of P this does what ZB-H1 does: 1F1B's memory, and a third of its bubble. Zero bubble pipelines "
    "are planned like this, by trying orders out with measured seconds of F, I and W.",
)
def least_bubble(rank, ranks, microbatches, budget):
    """Write a schedule with the least bubble, of which no rank holds more than ``budget`` activations.

    Rank r has stage r. Backward may be split: f"{rank}I{microbatch}" is the gradient of the input, for which the rank
    before waits, f"{rank}W{microbatch}" those of the weights. F, I and W take 1 s each, a whole B 2 s. A microbatch is
    held from F to W, or to B. The stub walks through the seconds and lets each rank choose; use it, or write the order
    down directly.
    """
    did = [{"F": 0, "I": 0, "W": 0} for _ in range(ranks)]  # how many of each, by rank
    there = {}  # (rank, kind, microbatch) -> the second from which on its result is there
    now = 0
    while did[rank]["W"] < microbatches:
        for r, done in enumerate(did):
            forward_is_there = r == 0 or there.get((r - 1, "F", done["F"]), now + 1) <= now
            # What else must hold for F, for I, for W? Which of those that can be done is best?
            # -
            gradient_is_there = r == ranks - 1 or there.get((r + 1, "I", done["I"]), now + 1) <= now
            in_flight, held = done["F"] - done["I"], done["F"] - done["W"]
            # .
            kind = None
            # ?
            if (
                done["F"] < microbatches
                and forward_is_there
                and held < budget
                and in_flight < min(ranks - r, budget)  # more would not be back earlier
            ):
                kind = "F"
            elif in_flight and gradient_is_there:
                kind = "I"
            elif done["W"] < done["I"]:
                kind = "W"  # nobody waits for it: it fills what would be idle
            # .
            if kind:
                if r == rank:
                    yield f"{r}{kind}{done[kind]}"
                there[r, kind, done[kind]] = now + 1
                done[kind] += 1
        now += 1
