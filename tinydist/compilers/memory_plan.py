"""Memory planning: tensors that are not alive at the same time share the bytes of one arena.

    offset   |  a a a a a           d d d d
             |  a a a a a           d d d d        d takes a's place, as a is needed no more
             |        b b b b b b b b
             |              c c c
             +------------------------------- step

A buffer is alive from the step that makes it to the last step that reads it, or a view of it. The largest are placed
first, each in the smallest gap between those that are alive at some of its steps, or behind them. No plan needs fewer
bytes than are alive at the fullest step (``most_alive``), and greedy placing is seldom far from it.

An allocator that frees each tensor after its last use (torch's own) holds as little, and what fragmentation costs; it
works at each step. With a plan there is one allocation, and its size is known before anything runs.

Source: greedy by size, for offsets, as in TensorFlow Lite (greedy_by_size_assignment.cc, read). Its authors' paper:
Pisarchyk and Lee 2020, Efficient Memory Management for Deep Neural Net Inference.
"""

from dataclasses import dataclass

from ..rules import each_of, must, whole

ALIGNMENT = 64  # bytes: a cache line


@dataclass(frozen=True)
class Buffer:
    nbytes: int
    first: int  # step
    last: int

    def __post_init__(self):
        for name in ("nbytes", "first", "last"):
            must("Buffer", name, whole, getattr(self, name))
        if self.last < self.first:
            raise ValueError(f"Buffer: last ({self.last}) must be at least first ({self.first})")

    def meets(self, other):
        return self.first <= other.last and other.first <= self.last


def greedy_by_size(buffers):
    """[the offset of each], and the bytes of all."""
    must("greedy_by_size", "buffers", each_of(Buffer, least=0), buffers)
    offsets = {}
    for place in sorted(range(len(buffers)), key=lambda place: -buffers[place].nbytes):
        near = [other for other in offsets if buffers[other].meets(buffers[place])]
        taken = sorted((offsets[other], offsets[other] + aligned(buffers[other])) for other in near)
        offsets[place] = smallest_gap(taken, aligned(buffers[place]))
    ends = [offsets[place] + aligned(buffer) for place, buffer in enumerate(buffers)]
    return [offsets[place] for place in range(len(buffers))], max(ends, default=0)


def smallest_gap(taken, size):
    """Where it begins; behind all, if it fits nowhere else."""
    gaps, end = [], 0
    for begin, until in taken:
        if begin - end >= size:
            gaps.append((begin - end, end))
        end = max(end, until)
    return min(gaps)[1] if gaps else end


def side_by_side(buffers):
    """Without reuse, for comparison: each has a place of its own."""
    must("side_by_side", "buffers", each_of(Buffer, least=0), buffers)
    offsets, end = [], 0
    for buffer in buffers:
        offsets.append(end)
        end += aligned(buffer)
    return offsets, end


def most_alive(buffers):
    """Bytes at the fullest step: no plan can do with less."""
    must("most_alive", "buffers", each_of(Buffer, least=0), buffers)
    alive = [sum(each.nbytes for each in buffers if each.first <= b.first <= each.last) for b in buffers]
    return max(alive, default=0)


def aligned(buffer):
    return -(-buffer.nbytes // ALIGNMENT) * ALIGNMENT
