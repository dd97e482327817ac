"""Serving: which sequence each KV block belongs to, block tables that share blocks, and who has which slot, when."""

from matplotlib.lines import Line2D
from matplotlib.patches import Patch, Rectangle

from ..rules import count, each_of, named, stated, validate, whole
from .canvas import canvas, inside, picture
from .formatting import tell
from .palette import BLUE, GREEN, GREY, LIGHT, ORANGE, PALE, PAPER, PURPLE, RED, SKY

OWNERS = BLUE, ORANGE, GREEN, PURPLE, SKY  # of sequences, in the order in which they are met
KINDS = {"prefill": ORANGE, "decode": SKY, "ended": LIGHT, "waits": GREY}
NAMES = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
SLOT = 0.22  # of a block


a_name = stated("text", lambda value: isinstance(value, str))
a_replay = stated("what serving.replay returns", lambda value: hasattr(value, "bars") and hasattr(value, "batch"))


@validate(moments=named(each_of(a_name)), block_size=count)
@picture
def block_owners(moments, block_size):
    """Draw ``moments``, title -> for each slot of the memory the name of the sequence whose token it holds, or " "."""
    names = dict.fromkeys(owner for owners in moments.values() for owner in owners if owner.strip())
    colors = dict(zip(names, OWNERS))
    last = [*moments.values()][-1]
    at_the_end = ", ".join(f"{last.count(name)} of {name}" for name in names if name in last) or "none"
    tell(f"tokens in memory at the end: {at_the_end}")
    figure, axes = canvas("Whose tokens the slots of each block hold.", 0.8 + 0.55 * len(moments))
    blocks = 0
    for row, (title, owners) in enumerate(moments.items()):
        blocks = max(blocks, -(-len(owners) // block_size))
        for place, owner in enumerate(owners):
            width = 4 * SLOT / block_size
            box = (place % block_size * width + place // block_size, row + 0.15, width, 0.7)
            color = colors.get(owner, LIGHT)
            axes.add_patch(Rectangle(box[:2], *box[2:], fc=color, ec=PAPER))
            inside(axes, box, owner, color)
        axes.text(-0.15, row + 0.5, title, ha="right", va="center")
    axes.set(xlim=(0, blocks), ylim=(len(moments), 0), xlabel="block", yticks=[])
    axes.set_xticks([each + 2 * SLOT for each in range(blocks)], range(blocks))
    without_frame(axes)
    return figure


@validate(moments=named(each_of(each_of(whole))))
@picture
def block_tables(moments):
    """Draw ``moments``, title -> the block table of each sequence; blocks that several tables name are pale."""
    said, most = [], max(len(table) for tables in moments.values() for table in tables)
    rows = max(map(len, moments.values()))
    alt = "The block table of each sequence, block after block."
    figure, axes = canvas(alt, 0.7 + 0.45 * rows, ncols=len(moments), squeeze=False)
    for one, (title, tables) in zip(axes[0], moments.items()):
        named_by = {block: sum(block in table for table in tables) for table in tables for block in table}
        said.append(f"{title}: {len(named_by)} blocks, {sum(users > 1 for users in named_by.values())} shared")
        for row, table in enumerate(tables):
            for column, block in enumerate(table):
                color = PALE if named_by[block] > 1 else ORANGE
                box = (column + 0.06, row + 0.1, 0.88, 0.8)
                one.add_patch(Rectangle(box[:2], *box[2:], fc=color))
                inside(one, box, [f"block {block}", str(block)], color)
        one.set(xlim=(0, most), ylim=(rows, 0), title=title, xticks=[])
        one.set_yticks([row + 0.5 for row in range(len(tables))], [f"sequence {i}" for i in range(len(tables))])
        without_frame(one)
    legend = [Patch(fc=PALE, label="shared"), Patch(fc=ORANGE, label="its own")]
    figure.legend(handles=legend, loc="outside upper right", ncols=2)
    tell("; ".join(said))
    return figure


def without_frame(axes):
    axes.tick_params(length=0)
    axes.spines[:].set_visible(False)


@validate(replays=named(a_replay))
@picture
def slots(replays):
    """Draw ``replays``, title -> Replay: which request has which slot of the batch, when; a cross where one is
    preempted."""
    rows = max(1 + max(bar.slot for bar in each.bars) for each in replays.values())
    height = 0.7 + (0.4 + 0.22 * rows) * len(replays)
    figure, axes = canvas("Which request has which slot, when.", height, nrows=len(replays), squeeze=False)
    last = max(each.seconds for each in replays.values())
    for one, (title, replay) in zip(axes[:, 0], replays.items()):
        for bar in replay.bars:
            box = (bar.start, bar.slot + 0.08, bar.end - bar.start, 0.84)
            one.add_patch(Rectangle(box[:2], *box[2:], fc=KINDS[bar.kind], ec=PAPER, lw=0.3))
            if bar.kind == "decode":
                inside(one, box, NAMES[bar.request % len(NAMES)], KINDS[bar.kind])
        for bar in preempted(replay):
            one.plot(bar.end, bar.slot + 0.5, "x", color=RED, mew=2, clip_on=False)
        one.set(xlim=(0, 1.02 * last), ylim=(rows, 0), yticks=[])
        one.set_title(f"{title}: {replay.seconds:.2f} s", loc="left")
    one.set_xlabel("seconds, by our clock")
    marks = legend_of(replays.values())
    figure.legend(handles=marks, loc="outside upper right", ncols=len(marks))
    tell("; ".join(f"{title}: {each.seconds:.2f} s, {each.batch:.2f} in a pass" for title, each in replays.items()))
    return figure


def legend_of(replays):
    drawn = {bar.kind for replay in replays for bar in replay.bars}
    marks = [Patch(fc=KINDS[kind], label=kind) for kind in KINDS if kind in drawn]
    if any(preempted(replay) for replay in replays):
        marks.append(Line2D([], [], label="preempted", marker="x", color=RED, mew=2, ls=""))
    return marks


def preempted(replay):
    """The last bar of each request before it lost its slot."""
    found, before = [], {}
    for bar in replay.bars:
        if bar.request in before and before[bar.request].end < bar.start:
            found.append(before[bar.request])
        before[bar.request] = bar
    return found
