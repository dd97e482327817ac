"""Data-parallel communication, and how much of it is exposed (not overlapped).

compute     | head | block 3 | block 2 | block 1 | embedding |     | end
sent               gather 2, reduce 3 | gather 1, reduce 2 | ..   reduce 1, embedding

reduced     a bucket once it is full; the next one begins when it is there. Each microbatch in ZeRO 2 and 3, else once
gathered    ZeRO 3: a block while the one before runs, forward and backward; the first one of each is waited for
            ZeRO 1, 2: all, after the optimizer's step; or, with ``overlap_param_gather``, block by block in forward
"""

from collections import Counter
from functools import lru_cache

from .activations import ITEM
from .buckets import MLP_NORM, block_of, buckets, later, times_of
from .machine import Group
from .uses import gathered_by_use, units

GRADIENT = {"fp16": 2, "bf16": 4, "fp32": 4}


def gradient_bytes(program, plan):
    """Of a gradient that is sent."""
    return ITEM[plan.precision] if program.narrow_sums else GRADIENT[plan.precision]


@lru_cache(4096)
def full_in(*part):
    """Of head, blocks, embedding, in the order of backward: numbers of buckets that are full then; in how many parts,
    one after another. (Those of a unit are all full at its end.) Blocks with experts are two, of which the MLP is the
    first."""
    *part, experts = part
    model, layers, by_unit = part[0], part[2], part[6]
    numbers, count = Counter(), Counter()
    for bucket in (each for each in buckets(*part) if each.experts == experts):
        block, time = divmod(bucket.full, times_of(model))
        segment = 2 * block + (time > MLP_NORM + later(model)) - (block > 0) if model.experts else block
        numbers[segment] += bucket.numbers
        count[segment] += 1
    count = Counter(dict.fromkeys(count, 1)) if by_unit else count
    return [(numbers[segment], count[segment]) for segment in range(layers * (1 + bool(model.experts)) + 2)]


def walk(segments, gathers=None, reduces=None, slower=0.0):
    """Seconds that communication adds to those of ``segments``, over one wire. ``gathers``: of what each needs, under
    way while the one before it runs. ``reduces``: of what is full when it ends, and in how many buckets. ``slower``:
    part of its speed that a segment loses meanwhile."""
    gathers, reduces = gathers or [0.0] * len(segments), reduces or [(0.0, 0)] * len(segments)
    now, wire = 0.0, gathers[0]
    arrives = wire
    for seconds, gather, (whole, count) in zip(segments, [*gathers[1:], 0.0], reduces):
        begin = now = max(now, arrives)
        if gather:
            arrives = wire = max(wire, now) + gather
        now += seconds
        if whole:
            wire = max(max(wire, begin) + whole, now + whole / count)
    added = max(now, wire) - sum(segments)
    beside = sum(gathers) + sum(whole for whole, _ in reduces) - added
    return added + slower * max(0.0, beside)


def in_turn(segments, parts):
    """The same of gradients alone, where a full bucket waits for the one before it in its part, as in this library.
    ``parts``: the ``reduces`` of each."""
    now, wire, done = 0.0, 0.0, [0.0] * len(parts)
    for seconds, *of_parts in zip(segments, *parts):
        buckets = [(number, whole / count) for number, (whole, count) in enumerate(of_parts) for _ in range(count)]
        for number, whole in buckets:
            now = max(now + seconds / len(buckets), done[number])
            wire = done[number] = max(now, wire) + whole
        now += 0.0 if buckets else seconds
    return max(now, wire) - sum(segments)


class ExposedCommunication:
    """Of a rank with (layers, is it the first of a pipeline, the last). ``found``: Times of a microbatch."""

    def __init__(self, model, program, plan, machine, part, found):
        self.model, self.program, self.plan, self.machine, inner = model, program, plan, machine, plan.tp
        self.of_dense = self.groups(plan.shards, plan.copies, inner)
        self.of_experts = self.groups(plan.expert_shards, plan.expert_copies, inner * plan.ep)
        self.shares = [(False, self.of_dense), (True, self.of_experts)][: 1 + bool(model.experts)]
        layers, first, last = part
        self.part = model, plan.tp, *part
        down, up = found.forward.seconds, found.backward.seconds + found.recomputed.seconds
        self.computing = found.forward.products / down, (found.backward.products + found.recomputed.products) / up
        self.forward = [found.embedding.seconds * first, *[down] * layers, found.loss.seconds * last]
        block = [up - found.backward_rest, found.backward_rest] if model.experts else [up]
        self.backward = [found.loss_backward.seconds * last, *block * layers, found.embedding_backward.seconds * first]

    def groups(self, shards, copies, stride):
        """Ranks with other shards, and those with the same, of parameters that ranks in between have not."""
        cluster = self.machine.cluster
        return Group.along(shards, stride, cluster), Group.along(copies, stride * shards, cluster)

    def gathered(self, numbers, groups=None):
        shards = (groups or self.of_dense)[0]
        return self.machine.collective("all-gather", numbers * ITEM[self.plan.precision], shards)

    def reduced(self, numbers, groups):
        shards, copies = groups
        nbytes = numbers * gradient_bytes(self.program, self.plan)
        over_copies = self.machine.collective("all-reduce", nbytes / shards.ranks, copies)
        return self.summed(nbytes, shards) + over_copies

    def summed(self, nbytes, shards):
        """Over shards; ``reduce``: one after another, each to the rank whose shard it is."""
        sums = "reduce-scatter" if self.plan.zero == 3 else self.program.sums
        if sums == "reduce":
            return shards.ranks * self.machine.collective("reduce", nbytes / shards.ranks, shards)
        return self.machine.collective(sums, nbytes, shards)

    def exposed(self):
        """Exposed communication time of a microbatch whose gradients are reduced."""
        how = ITEM[self.plan.precision], self.plan.zero == 3
        full = [(full_in(*self.part, *how, experts), groups) for experts, groups in self.shares]
        down, up = self.gathers() if self.plan.zero == 3 else ([], [])
        if not self.plan.overlap_comm:
            return sum(self.reduced(sum(n for n, _ in each), of) for each, of in full) + sum(down) + sum(up)
        parts = [self.in_buckets(each, groups) for each, groups in full]
        if self.model.experts and self.program.holds is None and not up:
            return in_turn(self.backward, parts)
        reduces = [tuple(map(sum, zip(*of_segment))) for of_segment in zip(*parts)]
        if up and self.plan.tp > 1 and not self.program.fused:  # a unit has two buckets, the second waits for the first
            return walk(self.backward, up) + sum(whole for whole, _ in reduces) + walk(self.forward, down)
        slower = [self.machine.contention * share for share in self.computing]
        forward = walk(self.forward, down, slower=slower[0]) if down else 0.0
        return walk(self.backward, up, reduces, slower[1]) + forward

    def in_buckets(self, full, groups):
        """Of each segment: seconds, and how many buckets."""
        seconds = {each: each[1] and each[1] * self.reduced(each[0] / each[1], groups) for each in {*full}}
        return [(seconds[each], each[1]) for each in full]

    def renewed(self):
        """Exposed time of ZeRO 1 and 2, which gather in the first forward after the optimizer's step."""
        down, _ = self.gathers()
        return walk(self.forward, down, slower=self.machine.contention * self.computing[0])

    def gathers(self):
        """Seconds: forward, and backward."""
        if self.program.reuse is not None:
            return [[self.gathered(each) for each in way] for way in gathered_by_use(self.program.reuse, *self.part)]
        throughout, each = units(*self.part)
        seconds = {numbers: self.gathered(numbers) for numbers in {throughout, *each}}
        up = [seconds[numbers] for numbers in each]
        if self.model.experts:
            experts = self.gathered(block_of(self.model, self.plan.tp, True), self.of_experts)
            up[1:-1] = [block + experts for block in up[1:-1]]
        down = up[::-1]
        down[0] += seconds[throughout]
        if throughout:  # a tied table is gathered by the model itself, after the last block for the head
            up[:2] = [up[0] + up[1] + seconds[throughout], 0.0]
        if self.model.experts:  # the second half of a block needs nothing more
            up = [up[0], *[part for block in up[1:-1] for part in (block, 0.0)], up[-1]]
        return down, up
