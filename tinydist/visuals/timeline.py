"""Timelines: compute, communication and waits of each rank of a run, or of one rank in each of several runs.

In a row, compute is above, with the names of block_names.py, and transfers below. Where both are drawn, communication
overlaps with compute; where a rank waits, it does not.
"""

from ..launching.launch import Run
from ..rules import each_of, many, named, stated, validate, whole
from .canvas import picture
from .formatting import percent, ranks_text, seconds_text, tell
from .palette import AXES, BLOCKS, GREYS
from .scene import Scene, a_moment, a_run, covered, scenes_of
from .time_axis import Axis, Sheet
from .timeline_rows import Rows, handles

NOTHING = 0.015  # of the longest: not worth a bracket


def is_mark(value):
    return isinstance(value, tuple) and len(value) == 2 and isinstance(value[1], str)


some_marks = stated(
    "(what, words), or a list of these",
    lambda value: is_mark(value) or (isinstance(value, list) and all(map(is_mark, value))),
)


ranks_of_axes = named(each_of(whole))


@validate(run=Run, ranks=many, since=a_moment, until=a_moment, mark=some_marks)
@picture
def timeline(run, ranks=None, since=None, until=None, mark=None):
    """Draw ``ranks`` (None: all, and at most 16) from ``since`` to ``until``: seconds, or names (scene.py).

    mark:  (what, words), or a list of these: a bracket with words. What: "waiting", for the longest wait; "all waits",
           each under a bracket, with their sum at the longest; the name of a block, as "AR1"; or two moments.
    """
    scene = Scene("timeline", run.trace, ranks, since, until)
    tell(summary(scene))
    rows = Rows(scene.rows, marked(scene, mark))
    return draw(alt(scene), rows, [f"rank {rank}" for rank in scene.ranks], scene)


@validate(runs=named(a_run), until=a_moment, along=named(ranks_of_axes))
@picture
def timelines(runs, rank=0, until=None, along=None):
    """Draw ``runs``, name -> run, or (run, since), each from its own beginning; what the others take less is marked.

    ``since`` and ``until`` are moments, as for ``timeline``. ``rank``: of all runs, or {name: of that run}.
    ``along``: of each run, {name of an axis: ranks of this rank's group}: what is sent among them has its own color.
    """
    scenes = scenes_of("timelines", runs, rank, until)
    axis = axis_of(scenes)
    for name, scene in scenes.items():
        sent = by_axis(scene.rows[0], (along or {}).get(name, {}))
        tell(f"{name}, {seconds_text(scene.seconds)}: {shares(scene.rows, scene.seconds)}{sent}")
    took = ", ".join(f"{name} {seconds_text(scene.seconds)}" for name, scene in scenes.items())
    who = f"rank {rank}" if isinstance(rank, int) else "one rank each"
    said = f"What {who} did in {len(scenes)} runs, in virtual time: {took}."
    rows, brackets = colored(scenes, along or {}), differences(scenes, axis.seconds)
    drawn = Rows(rows, brackets, styles=styles_of(along), around=0) if along else Rows(rows, brackets)
    return draw(said, drawn, list(scenes), axis)


def styles_of(along):
    """With a color for each axis; what is sent along none of them is dark."""
    axes = dict.fromkeys(each for of_run in along.values() for each in of_run)
    if len(axes) > len(AXES):
        raise ValueError(f"timelines: at most {len(AXES)} axes can be told apart, along has {', '.join(axes)}")
    return BLOCKS | {"communication": GREYS["forward"]} | dict(zip(axes, AXES))


def colored(scenes, along):
    """The first row of each scene, from its own beginning; what is sent along an axis is of that kind."""
    rows = first_rows(scenes)
    for name, row in zip(scenes, rows):
        row.communication = [block.along(along.get(name, {})) for block in row.communication]
    return rows


def by_axis(row, axes):
    """How long something is under way along each axis, in words."""
    sent = [(name, covered([b for b in row.communication if b.along(axes).kind == name])) for name in axes]
    return "".join(f"; along {name} {seconds_text(seconds)}" for name, seconds in sent)


def draw(alt, rows, names, axis):
    sheet = Sheet(alt, [rows.height], names, axis, handles(rows.rows, styles=rows.styles))
    rows.draw(sheet, sheet.strips[0], names)
    return sheet.figure


def first_rows(scenes):
    """Of each, counted from its own beginning."""
    return [scene.rows[0].since(scene.since) for scene in scenes.values()]


def axis_of(scenes):
    """From 0 to the end of the longest; it says where its 0 is, if that is the same for all."""
    said = {scene.since_words for scene in scenes.values()}
    return Axis(0.0, max(scene.seconds for scene in scenes.values()), said.pop() if len(said) == 1 else "")


# What is said of it. Seconds are those of all ranks together.


def summary(scene):
    count, everyone = len(scene.rows), len(scene.everyone)
    who = ranks_text(everyone) if count == everyone else f"{count} of {everyone} ranks"
    return f"{who}, {seconds_text(scene.seconds)}: {shares(scene.rows, count * scene.seconds)}"


def shares(rows, whole):
    compute, waiting, busy = (
        sum(covered(getattr(row, kind)) for row in rows) for kind in ("compute", "waiting", "communication")
    )
    either = sum(covered(row.compute + row.communication) for row in rows)
    if not compute and percent(waiting / whole) == percent(busy / whole) == "100 %":
        return "no compute, only waiting for communication"
    if not compute:
        return f"no compute, waiting {percent(waiting / whole)}, communication {percent(busy / whole)}"
    text = f"compute {percent(compute / whole)}, waiting {percent(waiting / whole)}"
    if busy:
        hidden = percent(max(0.0, compute + busy - either) / busy)
        text += f", communication {percent(busy / whole)} ({hidden} of it behind compute)"
    return text


def alt(scene):
    blocks = [block.name for block in scene.rows[0].compute if block.name]
    named = f": {', '.join(dict.fromkeys(blocks))}" if blocks else ""
    who = f"rank {scene.ranks[0]}" if len(scene.ranks) == 1 else ranks_text(len(scene.ranks))
    return f"What {who} did in {seconds_text(scene.seconds)} of virtual time{named}."


# What is to be seen.


def marked(scene, marks):
    """Number of a row -> [(start, end, words)]."""
    found = {}
    for what, words in [marks] if isinstance(marks, tuple) else marks or []:
        if what == "all waits":
            found |= {number: found.get(number, []) + spans for number, spans in all_waits(scene, words)}
            continue
        number, start, end = place_of(scene, what)
        found.setdefault(number, []).append((start, end, f"{words}, {seconds_text(end - start)}"))
    return found


def all_waits(scene, words):
    """Of each row that waits: its number, and brackets over waits that follow one another, the sum at the longest."""
    for number, row in enumerate(scene.rows):
        spans, least = [], NOTHING * scene.seconds
        for start, end, *_ in sorted(row.waiting):
            if spans and start - spans[-1][1] < least:
                spans[-1] = spans[-1][0], max(end, spans[-1][1])
            else:
                spans.append((start, end))
        if spans:
            longest = max(spans, key=lambda span: span[1] - span[0])
            spans = [span for span in spans if span == longest or span[1] - span[0] > least]
            said = {longest: f"{words}, {seconds_text(covered(row.waiting))} in all"}
            yield number, [(*span, said.get(span, "")) for span in spans]


def place_of(scene, what):
    """(number of the row, start, end) of the longest block of this name; or of two moments, above the first row."""
    if isinstance(what, tuple) and len(what) == 2:
        return 0, min(scene.times(what[0])), max(scene.times(what[1], at_end=True))
    found = [(number, block) for number, row in enumerate(scene.rows) for block in row.named(what)]
    if not found:
        raise ValueError(f"timeline: nothing that is drawn has the name {what!r}")
    number, block = max(found, key=lambda each: each[1].length)
    return number, block.start, block.end


def differences(scenes, longest):
    """Number of a row -> a bracket from its end to that of the longest."""
    less = {number: longest - scene.seconds for number, scene in enumerate(scenes.values())}
    return {
        number: [(longest - seconds, longest, f"{seconds_text(seconds)} less ({percent(seconds / longest)})")]
        for number, seconds in less.items()
        if seconds > NOTHING * longest
    }
