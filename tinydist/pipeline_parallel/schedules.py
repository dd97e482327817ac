"""Published pipeline schedules: the same work in different orders, with different bubbles and activation memory.

With P ranks, M microbatches, v stages per rank; F, B, I, W the seconds of a rank's passes over a microbatch (B = I + W,
and all v stages together). Idle seconds of a rank, and the most microbatches whose activations a rank holds, counted in
stages (so v times as many, each 1/v as large):

    schedule            idle                 held at most        messages
    naive               (M P - M) (F + B)    1                   1x
    GPipe               (P-1) (F + B)        M                   1x
    1F1B                (P-1) (F + B)        min(P, M)           1x       the same bubble as GPipe
    interleaved 1F1B    (P-1) (F + B) / v    P v + P - 1         v x
    looped BFS          (P-1) (F + B) / v    M v                 v x
    ZB-H1               (P-1) (F + I - W)    P                   1x
    ZB-H2               (P-1) (F + I - 2W)   2P - 1              1x       in a rank's own span, as ZB-V's
    ZB-V                0 if F = I = W       2P                  2x
    DualPipeV           (P-1) (F&B + B - 3W) 2P + 1              2x       of a stage: two per rank; F&B: both overlapped

For M >= 2P - 1, and W <= I in the lines with W. With v = 1 interleaved 1F1B is not 1F1B: its warm-up is twice as long,
and 2P - 1 are held. DualPipeV's is the published one; it is met where F = I, F&B = F + B.

Sources: Huang et al., GPipe, 2019; Narayanan et al., Megatron-LM, 2021 (1F1B and interleaved: section 2.2);
Lamy-Poirier, Breadth-First Pipeline Parallelism, 2023; Qi et al., Zero Bubble Pipeline Parallelism, 2024 (ZB-H1, ZB-H2:
section 2; ZB-V: Pipeline Parallelism with Controllable Memory, 2024); DualPipeV: Sea AI Lab's "cut in half" of
DeepSeek-V3's DualPipe, which has each parameter twice (README of deepseek-ai/DualPipe, 2025).

A rank's program is written as its passes, (stage, kind). Each kind of pass of a stage takes the microbatches in turn.
"""

from collections import defaultdict, deque
from itertools import chain, count

from .. import rules
from .schedule import BACKWARD, BACKWARD_INPUT, BACKWARD_WEIGHT, COMPUTE, FORWARD, Action, Overlap, Schedule


def passes(stage):
    """Forward and backward of a stage, and backward's halves, of the input and of the weights."""
    return [(stage, kind) for kind in COMPUTE]


# One stage per rank.


def naive(rank, ranks, microbatches):
    """One microbatch passes through all ranks and back before the next begins: only one rank works at a time."""
    forward, backward, _, _ = passes(rank)
    return [forward, backward] * microbatches


def gpipe(rank, ranks, microbatches):
    """All forwards, then all backwards."""
    forward, backward, _, _ = passes(rank)
    return [forward] * microbatches + [backward] * microbatches


def one_f_one_b(rank, ranks, microbatches):
    """One forward, one backward: a rank holds as many microbatches as there are ranks from it to the last."""
    forward, backward, _, _ = passes(rank)
    ahead = min(ranks - 1 - rank, microbatches)
    return [forward] * ahead + [forward, backward] * (microbatches - ahead) + [backward] * ahead


def zero_bubble(rank, ahead, owed, microbatches):
    """``ahead`` warmup forwards; weight gradients are deferred by ``owed`` microbatches after input gradients."""
    forward, _, of_input, of_weight = passes(rank)
    ahead = min(ahead, microbatches)
    owed = min(owed, microbatches - ahead)
    steady = [forward, of_input, of_weight] * (microbatches - ahead - owed)
    return [forward] * ahead + [forward, of_input] * owed + steady + [of_input, of_weight] * ahead + [of_weight] * owed


def zb_h1(rank, ranks, microbatches):
    """1F1B with backward in halves: the weights' half fills the end. No more is held than 1F1B's first rank holds."""
    return zero_bubble(rank, ranks - 1 - rank, rank, microbatches)


def zb_h2(rank, ranks, microbatches):
    """Twice as many forwards ahead fill the start as well: no rank waits once it has begun."""
    return zero_bubble(rank, 2 * (ranks - 1 - rank), 2 * rank, microbatches)


# Several stages per rank, in a loop: rank, rank + P, rank + 2P ...


def interleaved_1f1b(rank, ranks, microbatches, chunks):
    """1F1B over rounds of P microbatches, which each go through all stages of a rank before the next round."""
    size = round_size(ranks, microbatches)
    rounds, stages = range(microbatches // size), range(rank, ranks * chunks, ranks)
    forwards = [(stage, FORWARD) for _ in rounds for stage in stages for _ in range(size)]
    backwards = [(stage, BACKWARD) for _ in rounds for stage in reversed(stages) for _ in range(size)]
    ahead = min((chunks - 1) * size + 2 * (ranks - 1 - rank), len(forwards))
    together = chain.from_iterable(zip(forwards[ahead:], backwards))
    return forwards[:ahead] + list(together) + backwards[len(forwards) - ahead :]


def round_size(ranks, microbatches):
    """Microbatches of a round: P, or a little more if P does not divide M, or all if there are fewer."""
    rounds = max(1, microbatches // ranks)
    if microbatches % rounds:
        raise ValueError(
            f"interleaved 1F1B: microbatches must be divisible by M // P, but {microbatches} // {ranks} = {rounds} "
            f"does not divide {microbatches}"
        )
    return microbatches // rounds


def looped_bfs(rank, ranks, microbatches, chunks):
    """GPipe over several stages: all microbatches pass one stage before the next."""
    stages = range(rank, ranks * chunks, ranks)
    forwards = [(stage, FORWARD) for stage in stages for _ in range(microbatches)]
    backwards = [(stage, BACKWARD) for stage in reversed(stages) for _ in range(microbatches)]
    return forwards + backwards


# Two stages per rank, in a V: down the ranks and up again, so the first rank has both ends. In the papers' letters: 0
# is the stage on the way down, 1 the one on the way up.


def zb_v(rank, ranks, microbatches):
    """Zero bubble in the memory of 1F1B: forward has come back to the first rank when its backward begins there."""
    (F0, _, I0, W0), (F1, _, I1, W1) = passes(rank), passes(2 * ranks - 1 - rank)
    below = ranks - rank
    steady = max(microbatches, 2 * ranks - 1) - 2 * ranks + 1 + rank
    return [
        *[F0] * (2 * below - 1),
        *[F1, F0] * rank,
        *[F1, I1, W1] * below,
        *[F0, I0, W0, F1, I1, W1] * steady,
        *[I0, W0, F1, I1, W1] * (below - 1),
        *[I0, I1] * rank,
        *[I0, W0] * below,
        *[W1] * rank,
        *[W0] * rank,
    ]


def dualpipe_v(rank, ranks, microbatches):
    """Forward of one stage and backward of the other overlap, so that messages of one hide behind the other."""
    (F0, _, I0, W0), (F1, B1, I1, W1) = passes(rank), passes(2 * ranks - 1 - rank)
    B0 = rank, BACKWARD
    above, below = rank + 1, ranks - rank - 1
    steady = [(F0, B1), (F1, B0)] * (max(microbatches, 2 * ranks) - 2 * ranks + above)
    if not below:
        steady[:1] = [F0, B1]  # the last rank turns the first microbatch around: its backward needs this forward's
    late = ([I1, I0] * above)[above:] + [I0] * below
    owed = [W1 if each is I1 else W0 for each in late]
    return [
        *[F0] * (2 * below),
        *[F0, F1] * above,
        *[I1, W1, F1] * below,
        *steady,
        *[B1, (F1, B0)] * below,
        *([B1, B0] * above)[:above],
        *late[:above],
        *chain.from_iterable(zip(owed, late[above:])),
        *owed[below:],
    ]


SCHEDULES = {
    "naive": naive,
    "GPipe": gpipe,
    "1F1B": one_f_one_b,
    "interleaved 1F1B": interleaved_1f1b,
    "looped BFS": looped_bfs,
    "ZB-H1": zb_h1,
    "ZB-H2": zb_h2,
    "ZB-V": zb_v,
    "DualPipeV": dualpipe_v,
}
MOST_PASSES = 2**22  # forward; each takes about 200 bytes
LOOPED, V_SHAPED = ("interleaved 1F1B", "looped BFS"), ("ZB-V", "DualPipeV")


def make_schedule(name, ranks, microbatches, stages_per_rank=None) -> Schedule:
    """The schedule ``name``, one of SCHEDULES, of all ranks. ``stages_per_rank`` is for looped schedules (2 if None).

    Raises ``ValueError`` for an unknown name, or sizes for which there is no schedule.
    """
    if not rules.one_of(SCHEDULES)(name):
        raise ValueError(f"make_schedule: name must be one of {', '.join(SCHEDULES)}, got {name!r}")
    if not (rules.count(ranks) and rules.count(microbatches)):
        raise ValueError(f"{name}: it needs 1 or more ranks and microbatches, got {ranks} and {microbatches}")
    natural = 2 if name in LOOPED + V_SHAPED else 1
    chunks = natural if stages_per_rank is None else stages_per_rank
    if not rules.count(chunks) or (chunks != natural and name not in LOOPED):
        rule = "1 or more stages" if name in LOOPED else f"{natural} stage{'s' * (natural > 1)}"
        raise ValueError(f"{name}: a rank has {rule}, got {chunks}")
    if ranks * chunks * microbatches > MOST_PASSES:
        product = f"{ranks} ranks x {chunks} stages x {microbatches} microbatches"
        raise ValueError(f"{name}: schedule too large: {product} (limit: {MOST_PASSES} passes)")
    options = [chunks] if name in LOOPED else []
    programs = [SCHEDULES[name](rank, ranks, microbatches, *options) for rank in range(ranks)]
    return Schedule(
        name, tuple(tuple(numbered(program, microbatches)) for program in programs), ranks * chunks, microbatches
    )


def numbered(program, microbatches):
    """Actions from passes. A pair of passes is an overlap; passes beyond the last microbatch are left out."""
    turn = defaultdict(lambda: defaultdict(count))  # stage -> of its forwards (True), of its backwards (False)
    owed = defaultdict(deque)  # stage -> microbatches between I and W

    def action(stage, kind):
        if kind == BACKWARD_WEIGHT:
            return Action(stage, kind, owed[stage].popleft())
        microbatch = next(turn[stage][kind == FORWARD])
        if kind == BACKWARD_INPUT:
            owed[stage].append(microbatch)
        return Action(stage, kind, microbatch)

    for each in program:
        pair = isinstance(each[0], tuple)
        parts = [action(*one) for one in each] if pair else [action(*each)]
        parts = [part for part in parts if part.microbatch < microbatches]
        yield from [Overlap(*parts)] if len(parts) == 2 else parts
