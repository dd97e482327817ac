"""Schedule search: list scheduling under several policies, then local search, starting from the best.

Published schedules differ in how many forwards each stage runs ahead (warmup). To stay busy a stage needs as many
microbatches in flight as fit into the round trip from the end of a forward to its gradient, in units of the slowest
rank; more compensates for waits. So the search tries several multiples (``LEADS``) of that, one or two per following
stage, as many as memory allows, and then one more or less at each stage.

Policies are evaluated on few microbatches, and the best on all. With very many, only some are scheduled: the steady
state is periodic, and its period is repeated. So the search takes O(P M) time, most of it to write the actions. Small
schedules are searched exhaustively (list_scheduler.py).
"""

from bisect import bisect_left
from collections import Counter, defaultdict
from dataclasses import replace
from itertools import count as count_up
from itertools import product
from math import ceil, inf

from ..rules import amount, count, each_of, flag, validate, whole
from .analysis import Costs, analyze
from .list_scheduler import BranchAndBound, ListScheduler, Policy, Problem
from .replay import Stuck
from .schedule import BACKWARD, FORWARD, Action, Schedule
from .schedules import MOST_PASSES

# Values that a policy may have (list_scheduler.py says of what). They have no theory: they were tried on 48 problems
# (1F1B, loops and Vs on 4 to 8 ranks, unlike stages, the times of Zero Bubble's table 6). Some schedule gets longer
# without them: by 2 to 3 % without a lead of 2 or 1.25, by 46 % without 1; by 3 or 16 % with one of FIRST alone; by 1 %
# without a PATIENCE of 0.5, by 3 or 10 % with 0 or 1 alone; by 1 % with a STILL of 1 alone (0 alone was tried on 32 of
# them: no difference). A lead of 3 made none shorter.
LEADS, FIRST, PATIENCE, STILL = (2.0, 1.25, 1.0), (BACKWARD, FORWARD), (0.0, 0.5, 1.0), (1.0, 0.0)

# How long a search may take: a few seconds in all.
EFFORT, MOST_TRIES = 400_000, 500  # passes that are scheduled in search of a policy, and policies
SEARCHED, REPEATED = 4, 6  # rounds of P microbatches: to try policies, and to repeat the middle
BEST, WHOLE = 3, 30  # policies to evaluate by the middle, or as a whole
FEW, ORDERS = 48, 3000  # passes for which every order is tried; at most so many search steps


@validate(placement=each_of(whole), microbatches=count, costs=Costs, most_activations=amount, halves=flag, skewed=flag)
def find_schedule(placement, microbatches, costs=None, *, most_activations=None, halves=True, skewed=False) -> Schedule:
    """Search for the shortest schedule of stages on the ranks of ``placement`` (schedule.py).

    most_activations: what each rank may hold, in microbatches of one stage (None: all of them).
    halves:           split backward (I and W); False: full backward, as in torch.autograd.
    skewed:           ranks start the next step independently, as with optimizer post-validation (Qi et al., Zero
                      Bubble Pipeline Parallelism, 2024, section 4). Then the objective is the longest span of a rank,
                      from its first pass to its last.

    Raises ``ValueError`` where there is no such schedule.
    """
    problem = problem_of(tuple(placement), microbatches, costs or Costs(), most_activations, halves)
    few = replace(problem, microbatches=min(microbatches, max(SEARCHED * problem.ranks, 24)))
    policies = Search(few, skewed).policies()
    affordable = EFFORT // problem.passes
    if affordable or microbatches <= REPEATED * problem.ranks:
        best = policies[: min(max(1, affordable), WHOLE)]
        run = min((ListScheduler(problem, each) for each in best), key=score(skewed))
        exact = problem.passes <= FEW and not skewed and BranchAndBound(problem, run.makespan, ORDERS).programs
        return written(exact or run.programs, problem.placement, microbatches)
    runs = (ListScheduler(repeatable(problem), each) for each in policies[:BEST])
    programs = repeated(runs, microbatches)
    return written(programs or ListScheduler(problem, policies[0]).programs, problem.placement, microbatches)


def problem_of(placement, microbatches, costs, most_activations, halves):
    ranks = max(placement) + 1
    if sorted(set(placement)) != list(range(ranks)):
        raise ValueError(f"find_schedule: placement must name every rank from 0 to {ranks - 1}, got {placement}")
    most = max(Counter(placement).values())
    if len(placement) * microbatches > MOST_PASSES:
        raise ValueError(
            f"find_schedule: schedule too large: {len(placement)} stages x {microbatches} microbatches "
            f"(limit: {MOST_PASSES} passes)"
        )
    room = most * microbatches if most_activations is None else most_activations
    if room < most:
        raise ValueError(f"find_schedule: most_activations ({room}) must be >= {most}, the stages of a rank")
    return Problem(placement, microbatches, costs, [room] * ranks, halves)


def repeatable(problem):
    """The same with fewer microbatches: the others are rounds. And with memory for half of them at most, or ranks would
    put gradients of weights off to the end, and never be in step."""
    least = REPEATED * problem.ranks
    room = [min(each, REPEATED / 2 * len(problem.placement)) for each in problem.room]
    return replace(problem, microbatches=least + (problem.microbatches - least) % (2 * problem.ranks), room=room)


def score(skewed):
    """What counts, and then what all ranks take together: less of it leaves room to improve. Rounded: it does not
    depend on the order of sums."""

    def of(run):
        seconds = run.spans if skewed else run.free
        return round(max(seconds), 9), round(sum(seconds), 9)

    return of


def repeated(runs, microbatches):
    """Programs for so many: what ranks do in the middle of a run, again and again. None if no run has such a part, that
    takes no longer than the slowest rank's work."""
    for run in runs:
        for part in (0.4, 0.6):
            if pace(run, part, 2 * run.problem.ranks) <= run.makespan / run.problem.microbatches:
                return lengthened(run, part, microbatches - run.problem.microbatches)
    return None


def pace(run, part, more):
    """Seconds of each of ``more`` microbatches."""
    problem, programs = run.problem, lengthened(run, part, more)
    if programs is None:
        return inf
    try:
        longer = analyze(written(programs, problem.placement, problem.microbatches + more), problem.costs)
    except Stuck:
        return inf
    return (longer.makespan - run.makespan) / more


def lengthened(run, part, more):
    """``part`` of the run's time is gone when the repeated part begins."""
    programs = []
    for program, begins in zip(run.programs, run.begins):
        first = bisect_left(begins, part * run.makespan)
        lasts = [last for size, last in rounds(program, first) if more % size == 0]
        if not lasts:
            return None
        size = (lasts[0] - first) // len(set(program))
        programs.append(program[:first] + program[first : lasts[0]] * (1 + more // size) + program[lasts[0] :])
    return programs


def written(programs, placement, microbatches):
    turns = defaultdict(count_up)  # (stage, kind) -> microbatches
    actions = [tuple([Action(*each, next(turns[each])) for each in program]) for program in programs]
    return Schedule("found", tuple(actions), len(placement), microbatches)


def rounds(program, first):
    """(n, where a part ends that begins at ``first`` and has n passes of each kind)"""
    kinds, done = set(program), Counter()
    for last in range(first, len(program) - 1):
        done[program[last]] += 1
        if len(done) == len(kinds) and len(set(done.values())) == 1:
            yield done[program[last]], last + 1


class Search:
    """As many policies as ``EFFORT`` allows."""

    def __init__(self, problem, skewed):
        self.problem, self.score = problem, score(skewed)
        self.stages = range(len(problem.placement))
        self.tries = min(max(1, EFFORT // problem.passes), MOST_TRIES)
        self.found = {}  # (score, number of the try) -> run
        self.tried = {}  # policy -> run

    def policies(self):
        """The best first, improved as far as the effort goes."""
        choices = {"ahead": self._aheads(), "patience": PATIENCE, "still": STILL, "first": FIRST}
        policy = Policy(**{name: values[0] for name, values in choices.items()})
        for names in (("ahead", "first"), ("patience",), ("still",)):  # one after another, then all together
            for values in product(*[choices[name] for name in names]):
                self._run(policy._replace(**dict(zip(names, values))))
            policy = self.found[min(self.found)].policy
        for each in product(*choices.values()):
            self._run(Policy(**dict(zip(choices, each))))
        for each in sorted(self.found):
            self._improve(self.found[each])
        return [self.found[each].policy for each in sorted(self.found)]

    def _run(self, policy):
        """None if the effort is spent."""
        if policy not in self.tried and self.tries > 0:
            self.tries -= 1
            run = self.tried[policy] = ListScheduler(self.problem, policy)
            self.found[*self.score(run), len(self.tried)] = run
        return self.tried.get(policy)

    def _aheads(self):
        """One or two microbatches for each stage that follows; by time; as far as there is memory."""
        last, far = len(self.stages) - 1, SEARCHED * self.problem.ranks
        one, two = (tuple(1 + each * (last - stage) for stage in self.stages) for each in (1, 2))
        long, *others = map(self._ahead, LEADS)
        return [long, one, two, (far,) * len(self.stages), *others]

    def _ahead(self, lead):
        """Of each stage: the microbatches of the slowest rank in the time that one is away, ``lead`` times."""
        F, B = self.problem.seconds[FORWARD], self.problem.seconds[self.problem.backward]
        work = Counter()
        for stage, rank in enumerate(self.problem.placement):
            work[rank] += F[stage] + self.problem.seconds[BACKWARD][stage]
        slowest, away, ahead = max(work.values()), 0.0, []
        for stage in reversed(self.stages):
            ahead.append(1 + ceil(lead * away / slowest - 1e-9) if slowest else 1)
            moved = stage > 0 and self.problem.placement[stage - 1] != self.problem.placement[stage]
            away += F[stage] + B[stage] + 2 * self.problem.costs.message * moved
        return tuple(reversed(ahead))

    def _improve(self, best):
        """One or two more or less ahead, stage by stage, as long as that helps."""
        before = None
        while before is not best:
            before = best
            for stage, step in product(self.stages, (-1, 1, -2, 2)):
                ahead = list(best.policy.ahead)
                ahead[stage] = max(1, ahead[stage] + step)
                run = self._run(best.policy._replace(ahead=tuple(ahead)))
                if run and self.score(run) < self.score(best):
                    best = run
