"""A trace of requests served on the clock: a policy decides, nothing is computed, and time is what a pass would take.

    replay(Continuous(64, 2048), trace, BlockPool(981), StepCost(find_model("OPT 13B"), find_device("A100 40GB")))

What comes of it: tokens a second; how long each request waited for its first token, and from one token to the next;
where the cache's memory was; and who had which place when, a Gantt chart. The policy and the blocks are those that the
engine has: only the model is missing.
"""

from collections import deque
from dataclasses import dataclass, field
from statistics import mean, median

from ..rules import each_of, takes
from .blocks import BlockPool
from .clock import StepCost
from .policies import Reserving
from .request import Request
from .scheduler import Policy, Scheduler
from .trace import Ask
from .waste import KINDS, memory_of


@dataclass
class Life:
    """Of one request, in seconds from the start of the replay."""

    ask: Ask
    written: list = field(default_factory=list)  # when each of its tokens was there
    preempted: int = 0

    @property
    def first_token(self):
        """From its arrival to its first token."""
        return self.written[0] - self.ask.arrival

    @property
    def latency(self):
        """From its arrival to its last token."""
        return self.written[-1] - self.ask.arrival

    @property
    def normalized(self):
        """Latency a token: what the paper compares."""
        return self.latency / len(self.written)

    @property
    def a_token(self):
        """From one token to the next, on the mean; of a single one 0."""
        return (self.written[-1] - self.written[0]) / max(1, len(self.written) - 1)


@dataclass(frozen=True)
class Bar:
    """In place ``slot``, request ``request``: "prefill", "decode", or "ended", which keeps its place all the same."""

    slot: int
    request: int
    kind: str
    start: float
    end: float


@dataclass
class Replay:
    """lives: a ``Life`` for each request of the trace. bars: of ``Bar``.
    steps: (start, seconds, sequences, tokens) of each pass; memory: beside them, slots by kind (waste.py).
    """

    lives: list
    bars: list = field(default_factory=list)
    steps: list = field(default_factory=list)
    memory: list = field(default_factory=list)

    @property
    def seconds(self):
        return max(each.written[-1] for each in self.lives)

    @property
    def throughput(self):
        """Tokens written a second."""
        return sum(len(each.written) for each in self.lives) / self.seconds

    @property
    def batch(self):
        """Sequences in a pass, on the mean over time."""
        return self._over_time([sequences for _, _, sequences, _ in self.steps])

    @property
    def slots(self):
        """Of the cache by kind, on the mean over the time in which somebody waits for memory; else over all."""
        full = [each["external"] > 0 for each in self.memory]
        among = full if any(full) else [True] * len(full)
        return {kind: self._over_time([each[kind] for each in self.memory], among) for kind in KINDS}

    @property
    def used(self):
        """The part of the cache that tokens are in; what is free, and nobody waits for it, is left out."""
        slots = self.slots
        return slots["tokens"] / (sum(slots.values()) - slots["free"])

    @property
    def waste(self):
        """The part of what sequences hold that no token is in."""
        slots = self.slots
        return 1 - slots["tokens"] / (slots["tokens"] + slots["reserved"] + slots["internal"])

    @property
    def preemptions(self):
        return sum(each.preempted for each in self.lives)

    def summary(self):
        """Name -> number, in seconds, as a table shows them."""
        return {
            "tokens/s": self.throughput,
            "first token": median(each.first_token for each in self.lives),
            "next token": mean(each.a_token for each in self.lives),
            "latency a token": mean(each.normalized for each in self.lives),
            "sequences": self.batch,
            "used": self.used,
        }

    def _over_time(self, numbers, among=None):
        weights = [seconds for _, seconds, _, _ in self.steps]
        if among:
            weights = [weight * counts for weight, counts in zip(weights, among)]
        return sum(weight * number for weight, number in zip(weights, numbers)) / sum(weights)


@takes(policy=Policy, trace=each_of(Ask), pool=BlockPool, cost=StepCost)
def replay(policy, trace, pool, cost):
    """Serve ``trace`` by ``policy`` with the blocks of ``pool``: a ``Replay``. Raises ``ValueError`` for a request that
    could never be served.
    """
    scheduler, places, now = Scheduler(policy, pool), Places(), 0.0
    lives = [Life(ask) for ask in trace]
    found, of, paged = Replay(lives), {}, not isinstance(policy, Reserving)
    coming = deque(sorted(range(len(trace)), key=lambda i: trace[i].arrival))
    while coming or not scheduler.idle:
        if scheduler.idle:
            now = max(now, trace[coming[0]].arrival)
        while coming and trace[coming[0]].arrival <= now:
            i = coming.popleft()
            of[scheduler.add(Request([i] * trace[i].prompt, trace[i].output))] = i
        step = scheduler.step()
        for sequence in step.preempted:
            lives[of[sequence.served]].preempted += 1
        seconds = cost.seconds([(sequence.computed, new) for sequence, new in step.parts], paged)
        found.steps.append((now, seconds, len(step.parts), step.tokens))
        found.memory.append(memory_of(scheduler))
        places.hold(scheduler.running, step, of, now, now + seconds)
        now += seconds
        for sequence, _ in scheduler.update(step, lambda ready: [0] * len(ready)):
            lives[of[sequence.served]].written.append(now)
    found.bars = places.bars
    return found


class Places:
    """Who runs takes the first free place, and keeps it while it runs."""

    def __init__(self):
        self.of, self.bars, self.last = {}, [], {}

    def hold(self, running, step, requests, start, end):
        self.of = {each: slot for each, slot in self.of.items() if each in running}
        computing = {sequence for sequence, _ in step.parts}
        for sequence in running:
            if sequence not in self.of:
                taken = set(self.of.values())
                self.of[sequence] = next(slot for slot in range(len(taken) + 1) if slot not in taken)
            kind = kind_of(sequence) if sequence in computing or sequence.reason else "waits"
            self.add(Bar(self.of[sequence], requests[sequence.served], kind, start, end))

    def add(self, bar):
        """Longer, if it goes on."""
        at = self.last.get(bar.slot)
        before = None if at is None else self.bars[at]
        if before and (before.request, before.kind, before.end) == (bar.request, bar.kind, bar.start):
            self.bars[at] = Bar(bar.slot, bar.request, bar.kind, before.start, bar.end)
        else:
            self.last[bar.slot] = len(self.bars)
            self.bars.append(bar)


def kind_of(sequence):
    if sequence.reason:
        return "ended"
    return "decode" if sequence.left == 1 and len(sequence.tokens) > len(sequence.request.prompt) else "prefill"
