"""A rank's memory contents over time, at rest and at the peak; and the memory axis with its reference lines."""

from itertools import groupby
from operator import attrgetter

from matplotlib.ticker import MaxNLocator

from ..annotate import PURPOSES
from .canvas import apart, measure
from .figure import SMALL
from .formatting import BYTES, bytes_text
from .palette import INK, RED
from .scene import is_name
from .time_axis import GAP, inches_of

MOMENTS = 500  # more cannot be told apart


class MemoryStates:
    """Of ``rank``, while ``scene`` lasts: {kind: bytes}. Changes of other kinds do not count."""

    def __init__(self, scene, rank, kinds=PURPOSES, kind_of=attrgetter("purpose")):
        self.scene, self.rank, self.kinds, self.kind_of = scene, rank, kinds, kind_of
        self.states = list(self._states())  # (seconds, place in the rank's record, {kind: bytes})
        self.peak_time, self.peak = self._peak()
        self.rest_time, _, self.rest = min(self._between_passes(), key=lambda each: total(each[2]))

    def _states(self):
        """The one that it begins with, and those after the changes of each place."""
        held, begun = dict.fromkeys(self.kinds, 0), not self.scene.since
        if begun:
            yield 0.0, -1, dict(held)
        for _, together in groupby(self.scene.trace.memory[self.rank].changes, attrgetter("place")):
            changes = list(together)
            seconds, place = changes[0].seconds, changes[0].place
            if seconds > self.scene.since and not begun:
                yield self.scene.since, -1, dict(held)
                begun = True
            if seconds > self.scene.until:
                return
            for change in changes:
                kind = self.kind_of(change)
                if kind in held:
                    held[kind] += change.nbytes
            if begun:
                yield seconds, place, dict(held)
        if not begun:
            yield self.scene.since, -1, dict(held)

    def _between_passes(self):
        """From the last backward to the optimizer's step, what training keeps; of other programs all but the end."""
        operators = [event for event in self.scene.trace.of(self.rank, "compute") if event.end <= self.scene.until]
        backward = max((each.place for each in operators if each.phase == "backward"), default=-1)
        steps = [each.place for each in operators if each.phase == "optimizer" and each.place > backward]
        if not steps:
            last = max((each.place for each in operators), default=-1)
            return [state for state in self.states if state[1] <= last] or self.states
        before = [state for state in self.states if state[1] <= backward][-1:]
        return before + [state for state in self.states if backward < state[1] < min(steps)]

    def block(self, name):
        """The block of this name in the row of this rank, if it is there. (name, k): the k-th."""
        name, which = name if isinstance(name, tuple) else (name, 0)
        row = next(row for row in self.scene.rows if row.rank == self.rank)
        return next(iter(row.named(name)[which:]), None)

    def when(self, moment):
        """(what to ask the ledger for, seconds): of a block, the time at which most is held; of a mark, its name."""
        if not is_name(moment):
            return moment, moment
        if block := self.block(moment):
            time, _ = self.fullest(block.start, block.end)
            return time, time
        return moment, min(self.scene.times(moment))

    def _peak(self):
        """(seconds, state): in the middle of the time that it lasts. What begins at ``until`` is not seen, but for the
        end of the run."""
        until, end = self.scene.until, self.scene.trace.seconds
        seen = [number for number, (start, _, _) in enumerate(self.states) if start < until or until == end]
        number = max(seen, key=lambda each: total(self.states[each][2]))
        (start, _, state), *following = self.states[number:]
        return (start + (following[0][0] if following else self.scene.until)) / 2, state

    def fullest(self, start, end):
        """(seconds, state) in the middle of the first time between the two at which most is held, and lasts."""
        found, following = [], [seconds for seconds, _, _ in self.states[1:]] + [self.scene.until]
        for (seconds, _, state), until in zip(self.states, following):
            low, high = max(seconds, start), min(until, end)
            if low < high:
                found.append(((low + high) / 2, state))
        return max(found, key=lambda each: total(each[1]), default=(start, self.states[-1][2]))

    def curve(self):
        """Times from 0 and states, as a picture can show them: of each moment the fullest, and the one it ends with."""
        times, states, moment, width = [], [], None, self.scene.seconds / MOMENTS
        for seconds, _, state in self.states:
            time = seconds - self.scene.since
            if time // width != moment:
                moment = time // width
                times += [max(time, *times[-1:], 0.0), time]
                states += [state, state]
            if total(state) > total(states[-2]):
                states[-2] = state
            times[-1], states[-1] = times[-2] + width, state
        return [*times, max(self.scene.seconds, times[-1])], [*states, states[-1]]


def total(state):
    return sum(state.values())


APART = 0.15  # inches from one name to the next


def bytes_axis(axes, most, name):
    axes.set_ylim(0, 1.1 * most)
    axes.yaxis.set_major_locator(MaxNLocator(5, steps=[1, 2, 2.5, 5, 10]))
    measure(axes.yaxis, most, BYTES, name)
    axes.spines["left"].set_visible(True)
    axes.tick_params(axis="y", length=3)


def levels_of(states):
    """Name -> bytes: the peak, and what is held at rest, if that is something."""
    rest = {"at rest": total(states.rest)} if total(states.rest) else {}
    return rest | {"peak": total(states.peak)}


def told(levels):
    """In words."""
    where = {"peak": "at the peak"}
    return ", ".join(f"{bytes_text(nbytes)} {where.get(name, name)}" for name, nbytes in levels.items())


def mark_peak(axes, when, nbytes):
    axes.plot([when], [nbytes], marker="v", color=RED, markersize=6, clip_on=False, zorder=6)


def draw_levels(axes, height, levels):
    """``levels``: name -> bytes. ``height`` of the axes, in inches."""
    inches = height / axes.get_ylim()[1]
    for name, place in zip(levels, apart([nbytes * inches for nbytes in levels.values()], APART)):
        color = RED if name == "peak" else INK
        style = {"color": color, "linewidth": 0.8, "linestyle": (0, (4, 3)), "zorder": 4}
        axes.axhline(levels[name], **style)
        words = f"{name} {bytes_text(levels[name])}"
        weight = "bold" if name == "peak" else "normal"
        where = {"xycoords": axes.get_yaxis_transform(), "textcoords": "offset points", "va": "center"}
        axes.annotate(words, (1, place / inches), (4, 0), fontsize=SMALL, color=color, fontweight=weight, **where)


def room_for(levels):
    """Inches at the right of the axes that their names take."""
    return max(inches_of(f"{name} {bytes_text(nbytes)}", SMALL, "bold") for name, nbytes in levels.items()) + 2 * GAP
