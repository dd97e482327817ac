"""Sends and receives, added to a schedule of passes: posted ahead, so that only passes ever wait.

    rank 0      0F0  0SEND_F0               a send is posted right after the pass that makes what it sends
                        |
    rank 1      1RECV_F0 ... 1F0            a receive one pass ahead of the pass that needs it, which waits for it

Posting does not wait, so sends that cross cannot block each other. The rule that is left: **between two ranks, in one
direction, messages are received in the order in which they are sent.** Where a rank uses them in another order, the
receives of those that were overtaken are posted early, too. Then a schedule can deadlock only if its passes need one
another in a circle.

Stages of one rank hand tensors over without a message. Messages of a step: 2 M (v P - 1) in a loop of P > 1 ranks with
v stages each, 4 M (P - 1) in a V, each of one microbatch of what passes between two stages.
"""

from collections import defaultdict, deque
from dataclasses import replace

from ..rules import flag, takes
from .actions import CHECK, DOWN, NORM, UP, message_of, needs, result_of
from .schedule import Schedule


@takes(schedule=Schedule, blocking=flag)
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
