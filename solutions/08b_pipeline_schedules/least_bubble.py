"""A design: the least bubble that a memory budget allows, where backward may be split and messages take time."""

from tinydist.lab.author import Wrong, exercise, mistake
from tinydist.pipeline_parallel import Costs, analyze
from tinydist.pipeline_parallel.schedule import BACKWARD

from .choices import first_worse
from .schedules import OWN, Held, OfSchedule, Verified, asked, drawn, setting

# (ranks, microbatches, budget, seconds of a message) -> seconds that the solution takes
SECONDS = {
    (3, 9, 4, 1): 34,
    (2, 8, 3, 1): 26,
    (4, 12, 5, 1): 49,
    (5, 9, 7, 1): 42,
    (3, 9, 5, 2): 40,
    (2, 8, 8, 3): 28,
    (4, 8, 4, 0): 27,
    (1, 3, 1, 1): 9,
    (3, 9, 2, 1): 55,
    (3, 4, 1, 1): 44,
}
ROOM = 1.05  # times that


def test_cases():
    for ranks, microbatches, budget, message in SECONDS:
        yield setting(ranks, microbatches, budget=budget, message=message)


class Least(OfSchedule):
    name = "time"

    def look(self, mine, its, *size):
        *_, budget, message = size
        costs = Costs(message=message)
        analysis, least = analyze(mine, costs), SECONDS[size]
        if analysis.makespan > ROOM * least + 1e-6:
            raise Wrong(
                f"with F = I = W = 1 s and {message} s for a message it takes {analysis.makespan:g} s, where "
                f"{ROOM * least:g} s are allowed: {100 * analysis.bubble:.0f} % of it is idle. "
                f"{self.reason(mine, analysis, budget, message)}",
                drawn(mine, costs),
            )

    def reason(self, mine, analysis, budget, message):
        if any(action.kind == BACKWARD for program in mine.programs for action in program):
            return (
                "There are whole backwards: while B computes the gradients of the weights, the rank before waits for "
                "that of its output. I and W are B in two halves, and W can wait"
            )
        return first_worse(mine, analysis, budget, message)


class Budget(Held):
    name = "budget"

    def most(self, its, ranks, microbatches, budget, message):
        return [budget] * ranks


LIMIT = "and in_flight < 1 + (1 + message) * (ranks - 1 - r)"
CHOICE = "            if kind:\n                if r == rank:"
W = """            elif done["W"] < done["I"]:
                kind = "W"  # nobody waits for it: it fills what would be idle
"""


@exercise(
    title="Design: the least bubble under a memory budget, with messages",
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
            f"at most {ROOM} times what the solution takes: for (P, M, budget, message) = "
            + ", ".join(f"{size} {seconds} s" for size, seconds in SECONDS.items())
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
            "As many microbatches as the budget holds are between F and I: more than are on their way down and back "
            "only fill the memory",
            LIMIT,
            "and True",
        ),
        mistake(
            "One microbatch at a time is between F and I: the ranks wait for one another",
            LIMIT,
            "and in_flight < 1",
        ),
        mistake(
            "P - rank microbatches are between F and I, as where messages are instant: here some more are on their way",
            LIMIT,
            "and in_flight < ranks - r",
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
        "Which of the three does another rank wait for? The next one for F, the one before for I, nobody for W. So W "
        "fills what would be idle.",
        "What another rank has made is there only when its message has arrived. What a rank has made itself is there "
        "at once: the last one needs no message between its F and its I.",
        "How many microbatches are between F and I? On rank r one is gone for 2 (1 + message) seconds for each rank "
        "that follows. As long as W waits, it has an F and an I to do for each microbatch: 2 seconds. So how many are "
        "begun in that time? More than that only fill the memory.",
        "Of each rank you know how many of F, I and W it did: which two differences are to stay below which limits, "
        "before it does an F? If it cannot, does an I come in question; and if not that, a W?",
    ],
    why="How many are under way is how long each is away, over how often one starts (Little's law); here a microbatch "
    "is away for both messages of each rank that follows. Zero-bubble schedules are planned like this, by trying "
    "orders out with measured seconds of F, I, W and of a message.",
)
def least_bubble(rank, ranks, microbatches, budget, message):
    """Write a schedule with little bubble, of which no rank holds more than ``budget`` activations.

    Rank r has stage r. Backward may be split: f"{rank}I{microbatch}" is the gradient of the input, for which the rank
    before waits, f"{rank}W{microbatch}" those of the weights. F, I and W take 1 s each, a whole B 2 s, and what goes to
    another rank is there ``message`` seconds later (a whole number, 0 or more). A microbatch is held from F to W, or to
    B. The stub walks through the seconds and lets each rank choose; use it, or write the order down directly. A check
    stops a rank after 200,000 lines of code: enough to follow some plans second by second, not to try out dozens.
    """
    did = [{"F": 0, "I": 0, "W": 0} for _ in range(ranks)]  # how many of each, by rank
    there = {}  # (rank, kind, microbatch) -> the second from which on its result is on another rank
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
                and in_flight < 1 + (1 + message) * (ranks - 1 - r)  # more would not be back earlier
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
                there[r, kind, done[kind]] = now + 1 + message  # on another rank
                done[kind] += 1
        now += 1
