"""Adds sends and receives to a schedule of passes, posted early, so that only passes ever block; and verifies them.

    rank 0      0F0  0SEND_F0               a send is posted right after the pass that makes what it sends
                        |
    rank 1      1RECV_F0 ... 1F0            a receive one pass ahead of the pass that needs it, which waits for it

Posting is nonblocking, so opposite sends cannot block each other. One rule remains: **between two ranks, in one
direction, messages are received in the order in which they are sent.** If a rank needs them in another order, the
receives of the earlier sends are posted early, too. Then a schedule can deadlock only if its passes depend on each
other in a cycle.

Stages of one rank hand tensors over without a message. Messages of a step: 2 M (v P - 1) in a loop of P > 1 ranks with
v stages each, 4 M (P - 1) in a V, each of one microbatch of what passes between two stages.
"""

from collections import Counter, defaultdict, deque
from dataclasses import replace
from typing import NamedTuple

from ..rules import flag, validate
from .schedule import CHECK, DOWN, MESSAGES, NORM, UP, Action, Schedule, message_of, needs, result_of


@validate(schedule=Schedule, blocking=flag)
def with_messages(schedule, blocking=False):
    """A verified schedule with a send and a receive for each result that is needed on another rank.

    blocking: each receive stands right before the pass that needs it, or before the receive of what was sent later: so
              it may wait where it stands, as in torch's dry run, and no rank waits for more than the pass would.
    """
    if schedule.has_messages:
        return schedule
    under_way = defaultdict(deque)  # (source, destination) -> receives, in the order of sends
    programs = [list(sending(schedule, rank, under_way)) for rank in range(schedule.ranks)]
    programs = [tuple(receiving(schedule, rank, program, under_way, blocking)) for rank, program in enumerate(programs)]
    return replace(schedule, programs=tuple(programs))


def destination(schedule, result):
    """The rank that a pass's result must be sent to, or None."""
    stage, kind, _ = result
    if kind not in DOWN + UP or (kind == NORM and stage == schedule.ranks - 1):
        return None
    there = schedule.rank_of.get(stage + 1 if kind in DOWN else stage - 1)
    return None if there == schedule.rank_of[stage] else there


def sending(schedule, rank, under_way):
    """(pass, the sends that follow it)."""
    for each in schedule.programs[rank]:
        sends = []
        for result in map(result_of, each.parts):
            to = destination(schedule, result)
            if to is not None:
                send, receive = message_of(result)
                sends.append(send)
                under_way[rank, to].append(receive)
        yield each, sends


def receiving(schedule, rank, program, under_way, blocking):
    """The program of a rank, with its receives. None is posted ahead of CHECK, which may undo all since STEP."""
    posted = set()
    first, *following = [each for each, _ in program] or [None]
    yield from receives_of(schedule, rank, first, under_way, posted)
    for (each, sends), ahead in zip(program, [*following, None]):
        receives = list(receives_of(schedule, rank, ahead, under_way, posted))
        late = blocking or each.parts[0].kind == CHECK
        yield from [each, *sends, *receives] if late else [*receives, each, *sends]


def receives_of(schedule, rank, each, under_way, posted):
    """What must be posted for this pass, and all that was sent before it."""
    for result in [needs(part, schedule.stages, schedule.ranks) for part in each.parts] if each else ():
        source = None if result is None else schedule.rank_of[result.stage]
        if source in (None, rank):
            continue
        receive = message_of(result)[1]
        while receive not in posted:
            earlier = under_way[source, rank].popleft()
            posted.add(earlier)
            yield earlier


# Do they pair up?


class Expected(NamedTuple):
    """A message, as the send and the receive of it are expected to be."""

    receive: Action
    ends: tuple[int, int]  # (source, destination)
    neighbor: Action  # the pass that makes it, or needs it


class Pairing:
    """The verifier's rule: what a rank needs of another is sent once and received once, in the order in which it is
    sent, after it is made and before it is needed; and nothing else is. ``facts``: the Check, with each action's place.
    """

    def __init__(self, facts):
        self.facts, self.schedule = facts, facts.schedule
        self.expected = dict(self._expected())

    def _expected(self):
        """Send or receive -> Expected."""
        home = self.facts.home
        for part in [part for part in self.facts.steps if part.kind not in MESSAGES]:
            result = needs(part, self.schedule.stages, self.schedule.ranks)
            if result and home[result.stage] != home[part.stage]:
                send, receive = message_of(result)
                ends = home[result.stage], home[part.stage]
                yield send, Expected(receive, ends, self.facts.maker(result))
                yield receive, Expected(receive, ends, part)

    def check(self):
        sent, received, done = defaultdict(list), defaultdict(list), Counter()  # ends -> receives, in order
        for rank, step, part in self.schedule.all_parts():
            if part.kind not in MESSAGES:
                continue
            done[part] += 1
            if part not in self.expected or done[part] > 1:
                why = "is there already" if part in self.expected else "brings nothing that another rank needs"
                self.facts.fail("messages", f"{part} {why}", rank, step)
            self._in_its_place(part, rank, step)
            receive, ends, _ = self.expected[part]
            (received if part == receive else sent)[ends].append(receive)
        for message, expected in self.expected.items():
            if not done[message]:
                text = f"{message} is missing: {expected.neighbor} is for another rank, or from one"
                self.facts.fail("messages", text, self.facts.home[message.stage])
        for ends, order in sent.items():
            self._in_order(ends[0], order, received[ends])

    def _in_its_place(self, message, rank, step):
        receive, _, neighbor = self.expected[message]
        there, at = self.facts.steps[neighbor]
        if there != rank:
            text = f"{message} is of stage {message.stage}, which is on rank {there}"
            self.facts.fail("messages", text, rank, step)
        if message == receive and step > at:
            self.facts.fail("order", f"{message} comes after {neighbor}, at step {at}, which needs it", rank, step)
        if message != receive and step < at:
            text = f"{message} comes before {neighbor}, at step {at}, which makes what it sends"
            self.facts.fail("order", text, rank, step)

    def _in_order(self, source, sent, received):
        for first, other in zip(sent, received):
            if first != other:
                text = f"{other} is received where rank {source} sends what is for {first}: out of order"
                self.facts.fail("messages", text, *self.facts.steps[other])
