"""Simulates serving a trace of requests: the scheduler runs, no model does, and passes take the cost model's time.

    cost = StepCost(find_model("OPT 13B"), find_device("A100 40GB"))
    replay(ContinuousBatching(64, 2048), trace, BlockPool(981), cost)

It measures throughput in tokens/s; time to first token (TTFT) and time per output token (TPOT) of each request;
KV-cache usage; and a Gantt chart of the slots. Policy and block pool are those of the engine.

Memory holds tokens, or three kinds of waste:

    reserved for 2048    a b c d e . . . - - - - - - - - - - -       reserved: . , tokens that will come
                                                                     internal: - , none will ever be there
    free                 between two pieces, or too little           external: it is of no use to those who wait

In blocks of B, a sequence leaves less than one block empty, (B - 1)/2 slots on average, if its length
has nothing to do with B; so of what n sequences of T tokens hold,

    waste = (B - 1)/2 / (T + (B - 1)/2)        ShareGPT, T = 499, B = 16: 1.5 %     Alpaca, T = 78: 8.8 %; B = 4: 1.9 %

Reserved in one piece for L tokens, each wastes 1 - T/L: three quarters of 2048.

Source: Kwon et al. 2023, PagedAttention, section 3.1 and figure 2, where the three kinds have these names.
"""

from collections import deque
from dataclasses import dataclass, field
from statistics import mean, median

from ..rules import count, each_of, positive, validate
from .blocks import BlockPool
from .clock import StepCost
from .request import Request
from .scheduler import Scheduler, SchedulingPolicy
from .trace import TraceRequest

KINDS = "tokens", "reserved", "internal", "external", "free"  # free: no request waits for it


@dataclass
class Life:
    """Of one request, in seconds."""

    request: TraceRequest
    written: list = field(default_factory=list)  # when each of its tokens was there, from the start of the replay
    preempted: int = 0

    @property
    def ttft(self):
        """Time to first token, from the request's arrival."""
        return self.written[0] - self.request.arrival

    @property
    def tpot(self):
        """Time per output token after the first, on average; 0 for a single one."""
        return (self.written[-1] - self.written[0]) / max(1, len(self.written) - 1)

    @property
    def latency(self):
        """From arrival to the last token."""
        return self.written[-1] - self.request.arrival

    @property
    def normalized_latency(self):
        """Normalized latency: end-to-end latency per output token (the papers' metric)."""
        return self.latency / len(self.written)


@dataclass(frozen=True)
class Bar:
    """In row ``slot``, request ``request``: "prefill", "decode", "waits", or "ended", which keeps its place."""

    slot: int
    request: int
    kind: str
    start: float
    end: float


@dataclass
class Replay:
    """lives: a ``Life`` for each request of the trace. bars: of ``Bar``.
    steps: (start, seconds, sequences, tokens) of each pass; memory: beside them, slots by kind.
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
        """Throughput: output tokens per second."""
        return sum(len(each.written) for each in self.lives) / self.seconds

    @property
    def batch(self):
        """Mean batch size (sequences per pass), weighted by time."""
        return self._over_time([sequences for _, _, sequences, _ in self.steps])

    @property
    def slots(self):
        """Of the cache by kind, on average over the time in which a request waits for memory; else over all."""
        full = [each["external"] > 0 for each in self.memory]
        among = full if any(full) else [True] * len(full)
        return {kind: self._over_time([each[kind] for each in self.memory], among) for kind in KINDS}

    @property
    def used(self):
        """The fraction of the cache that holds tokens; free slots that no request waits for are left out."""
        slots = self.slots
        return slots["tokens"] / (sum(slots.values()) - slots["free"])

    @property
    def waste(self):
        """The fraction of what sequences hold that no token is in."""
        slots = self.slots
        return 1 - slots["tokens"] / (slots["tokens"] + slots["reserved"] + slots["internal"])

    @property
    def preemptions(self):
        return sum(each.preempted for each in self.lives)

    def summary(self):
        """Name -> number, in seconds, as a table shows them."""
        return {
            "tokens/s": self.throughput,
            "TTFT": median(each.ttft for each in self.lives),
            "TPOT": mean(each.tpot for each in self.lives),
            "normalized latency": mean(each.normalized_latency for each in self.lives),
            "sequences": self.batch,
            "used": self.used,
        }

    def _over_time(self, numbers, among=None):
        weights = [seconds for _, seconds, _, _ in self.steps]
        if among:
            weights = [weight * counts for weight, counts in zip(weights, among)]
        return sum(weight * number for weight, number in zip(weights, numbers)) / sum(weights)


@validate(policy=SchedulingPolicy, trace=each_of(TraceRequest), pool=BlockPool, cost=StepCost)
def replay(policy, trace, pool, cost):
    """Serve ``trace`` by ``policy`` with the blocks of ``pool``: a ``Replay``. Raises ``ValueError`` for a request that
    could never be served.
    """
    scheduler, gantt, now = Scheduler(policy, pool), Gantt(), 0.0
    lives = [Life(request) for request in trace]
    found, number = Replay(lives, gantt.bars), {}  # RequestState -> which request of the trace
    coming = deque(sorted(range(len(trace)), key=lambda i: trace[i].arrival))
    while coming or not scheduler.idle:
        if scheduler.idle:
            now = max(now, trace[coming[0]].arrival)
        while coming and trace[coming[0]].arrival <= now:
            i = coming.popleft()
            number[scheduler.add(Request([i] * trace[i].prompt, trace[i].output))] = i
        step = scheduler.schedule()
        for sequence in step.preempted:
            lives[number[sequence.state]].preempted += 1
        seconds = cost.seconds([(each.num_computed_tokens, new) for each, new in step.scheduled], policy.paged)
        found.steps.append((now, seconds, len(step.scheduled), step.num_tokens))
        found.memory.append(memory_of(scheduler))
        gantt.draw(scheduler.running, step, number, now, now + seconds)
        now += seconds
        for sequence, _ in scheduler.update(step, lambda ready: [0] * len(ready)):
            lives[number[sequence.state]].written.append(now)
    return found


class Gantt:
    """A running sequence takes the first free row, and keeps it while it runs."""

    def __init__(self):
        self.slot_of, self.bars, self.last = {}, [], {}

    def draw(self, running, step, number, start, end):
        self.slot_of = {each: slot for each, slot in self.slot_of.items() if each in running}
        computing = {sequence for sequence, _ in step.scheduled}
        for sequence in running:
            if sequence not in self.slot_of:
                taken = set(self.slot_of.values())
                self.slot_of[sequence] = next(slot for slot in range(len(taken) + 1) if slot not in taken)
            self.add(Bar(self.slot_of[sequence], number[sequence.state], kind_of(sequence, computing), start, end))

    def add(self, bar):
        """Longer, if it goes on."""
        at = self.last.get(bar.slot)
        before = None if at is None else self.bars[at]
        if before and (before.request, before.kind, before.end) == (bar.request, bar.kind, bar.start):
            self.bars[at] = Bar(bar.slot, bar.request, bar.kind, before.start, bar.end)
        else:
            self.last[bar.slot] = len(self.bars)
            self.bars.append(bar)


def kind_of(sequence, computing):
    if sequence.finish_reason:
        return "ended"
    if sequence not in computing:
        return "waits"
    return "decode" if sequence.num_uncomputed_tokens == 1 and sequence.output_tokens else "prefill"


@validate(tokens=positive, block_size=count)
def expected_waste(tokens, block_size=16):
    """The fraction of the slots in sequences' blocks that hold no token, at a mean length of so many tokens."""
    spare = (block_size - 1) / 2
    return spare / (tokens + spare)


@validate(trace=each_of(TraceRequest), block_size=count)
def waste_in_blocks(trace, block_size=16):
    """The same, counted: when all requests of a trace have their last token."""
    held = sum(-(-each.tokens // block_size) * block_size for each in trace)
    return 1 - sum(each.tokens for each in trace) / held


def memory_of(scheduler):
    """Kind -> slots, now. The tokens of a finished sequence that keeps its place are of no use: internal."""
    pool, kinds = scheduler.pool, dict.fromkeys(KINDS, 0)
    spare = {}  # of the block that is filled next, which samples may share: slots that will be filled, that never will
    for sequence in scheduler.running:
        table = sequence.table
        to_come = 0 if sequence.finish_reason else min(table.waste, sequence.request.longest - table.length)
        spare[table.blocks[-1]] = to_come, table.waste - to_come
        kinds["internal"] += table.length if sequence.finish_reason else 0
    kinds["reserved"] = sum(to_come for to_come, _ in spare.values())
    kinds["internal"] += sum(never for _, never in spare.values())
    kinds["external" if waits_for_memory(scheduler) else "free"] = len(pool.free) * pool.block_size
    kinds["tokens"] = pool.num_blocks * pool.block_size - sum(kinds.values())
    return kinds


def waits_for_memory(scheduler):
    """Whether a request could run, if the free memory were not too little, or too scattered."""
    pool, policy = scheduler.pool, scheduler.policy
    if not scheduler.waiting or len(scheduler.running) >= policy.max_num_seqs:
        return False
    return not policy.paged or pool.needed(len(scheduler.waiting[0].tokens)) > len(pool.free)
