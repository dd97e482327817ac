"""Block labels in timelines: F1, B4, AR2, Adam.

A part of a model is a layer, with its number, or it has its own name (``head``). Layers are the outermost modules that
have a number in their name, and weights; what runs between them without weights, as an activation function does,
belongs to the layer before. So a block of a timeline is as coarse as it can be and still say where in the model it is.

A program that names its regions is called by these, where a rank has two or more: the passes of a pipeline. A region
that is the whole step says less than its passes do, which are F and B in it.
"""

import re
from collections import Counter
from functools import cached_property

PASSES = {"forward": "F", "recompute": "R", "backward": "B"}
COLLECTIVES = {"all_reduce": "AR", "all_gather": "AG", "reduce_scatter": "RS", "all_to_all": "A2A", "broadcast": "BC"}
IN_WORDS = {short: f"{short}: {name.replace('_', '-')}" for name, short in COLLECTIVES.items()} | {
    "→": "→ sent",
    "←": "← received",
}
STEP = re.compile(r"Optimizer\.step#(\w+)")
OF_LIBRARIES = re.compile("::|#|^DistributedDataParallel")  # torch names its own doings, too
OF_SCHEDULES = re.compile(r"(?:PP:)?(\d*)(F|B|I|W|Forward |Backward )(\d+)")  # stage, pass, microbatch


class BlockNames:
    """Of the parts, regions and transfers of a trace."""

    def __init__(self, trace):
        self.trace = trace

    @cached_property
    def parts(self):
        """Paths of all parts, in the order in which they first ran forward."""
        computed = [event for event in self.trace.events if event.stream == "compute"]  # what is gathered runs ahead
        ran = {event.module: None for event in computed if event.phase in ("forward", "recompute")}
        return [part for part in ran if part]

    @cached_property
    def first_forward(self):
        """Seconds; what was before is initialization. None: there is no forward pass."""
        return min((event.start for event in self.trace.events if event.phase == "forward"), default=None)

    @cached_property
    def parameters(self):
        """All changes of the ledger that are of parameters with a name."""
        changes = [change for held in self.trace.memory for change in held.changes]
        return [change for change in changes if change.purpose == "parameters" and change.label]

    @cached_property
    def with_weights(self):
        """Labels of parameters; a part that has had some is a layer."""
        return {change.label for change in self.parameters}

    @cached_property
    def opened(self):
        """Paths that are looked into: all around a module with a number."""
        found = {""}
        for path in {*self.parts, *self.with_weights}:
            steps = path.split(".")
            first = next((place for place, step in enumerate(steps) if step.isdigit()), 0)
            found |= {".".join(steps[: place + 1]) for place in range(first)}
        return found

    def cut(self, path):
        """The part of the model, as it is drawn, in which ``path`` is."""
        steps = path.split(".")
        heads = (".".join(steps[: place + 1]) for place in range(len(steps)))
        return next((head for head in heads if head not in self.opened), "")

    @cached_property
    def layers(self):
        """Parts as they are drawn that have or had weights."""
        return {self.cut(label) for label in self.with_weights}

    @cached_property
    def holding(self):
        """Those that have weights of their own when forward begins."""
        there, last = Counter(), self.first_forward
        for change in self.parameters:
            if last is None or change.seconds <= last:
                there[change.label] += change.nbytes
        return {self.cut(label) for label, nbytes in there.items() if nbytes or last is None}

    @cached_property
    def called(self):
        """Part as it is drawn -> what it is called; layers by number."""
        found, count = {}, 0
        for part in dict.fromkeys(map(self.cut, [*self.parts, *sorted(self.with_weights)])):
            last = part.rpartition(".")[2]
            if part not in self.layers and last.isdigit():
                found[part] = str(count or 1)  # of the layer before
            elif last.isdigit():
                count += 1
                found[part] = str(count)
            else:
                found[part] = last
        return found

    def short(self, path):
        """A layer's number, or a name; "" for what is in no part."""
        return self.called.get(self.cut(path), "")

    @cached_property
    def by_regions(self):
        """Do regions tell more of the ranks than the model's parts? Most of both passes is in them, in two or more."""
        operators = [event for event in self.trace.events if event.transfer is None]
        passes = [event for event in operators if event.phase in PASSES] or operators
        named = [event for event in passes if self.region(event)]
        several = {(event.rank, self.region(event)) for event in named}
        return len(several) > len({rank for rank, _ in several}) and seconds_in(named) > seconds_in(passes) / 2

    def region(self, event):
        """The innermost that the program named."""
        return next((name for name in reversed(event.regions) if not OF_LIBRARIES.search(name)), "")

    @cached_property
    def whole_steps(self):
        """Regions in which a rank has forward and backward, and it has both in no other."""
        phases = {}  # rank -> region -> phases
        for event in self.trace.events:
            if event.phase in PASSES and event.transfer is None and (name := self.region(event)):
                phases.setdefault(event.rank, {}).setdefault(name, set()).add(event.phase)
        both = {rank: [name for name, seen in regions.items() if len(seen) > 1] for rank, regions in phases.items()}
        return {names[0] for names in both.values() if len(names) == 1}

    @cached_property
    def stages(self):
        """(rank, stage) of all regions that are passes; "" is the only stage."""
        return {(event.rank, match[1]) for event in self.trace.events if (match := passes(self.region(event)))}

    @property
    def several_stages(self):
        """Has a rank of a pipeline more than one?"""
        return len(self.stages) > len({rank for rank, _ in self.stages})

    # Names of blocks.

    def of_operator(self, event):
        """(kind, name)."""
        if event.phase == "optimizer":
            return "optimizer", self.optimizer(event)
        if self.by_regions:
            return self.of_region(self.region(event), event.phase)
        short, letter = self.short(event.module), PASSES.get(event.phase, "")
        return event.phase or self.nameless, joined(letter, short) if letter and short else ""

    @property
    def nameless(self):
        """The kind of what belongs to no pass: all of it, or what is beside."""
        return "other" if self.parts or self.stages else "compute"

    def layer_of(self, block):
        """What F2 and B2 are passes of; of a block that has another name, nothing."""
        return "" if self.by_regions else block[1:]

    def optimizer(self, event):
        """One that wraps another is called as that."""
        steps = steps_of(event)
        outer, inner = self.optimizers
        return steps[-1] if steps and steps[-1] not in outer else next(iter(inner), "step")

    @cached_property
    def optimizers(self):
        """Those that wrap others, and those that do not."""
        found = {steps_of(event): None for event in self.trace.events if event.phase == "optimizer"}
        outer = {name for steps in found for name in steps[:-1]}
        return outer, [steps[-1] for steps in found if steps and steps[-1] not in outer]

    def of_region(self, name, phase):
        if found := passes(name):
            stage, letter, microbatch = found.groups()
            letter = letter[0]
            kind = {"F": "forward", "W": "weights"}.get(letter, "backward")
            return kind, f"{stage}{letter}{microbatch}" if self.several_stages else f"{letter}{microbatch}"
        if name in self.whole_steps:
            name = PASSES.get(phase, "")
        return phase or self.nameless, name

    def of_transfer(self, event):
        if event.name == "message":
            source, to = event.transfer.ranks
            return f"→{to}" if event.rank == source else f"←{source}"
        first, _, last = (self.of_what(what) for what in (event.what or event.module).partition(" … "))
        letters, name = COLLECTIVES.get(event.name, event.name.replace("_", "-")), f"{first}–{last}" if last else first
        if not name and self.by_regions:
            name = self.region(event).removeprefix(letters)
        return joined(letters, name)

    def of_what(self, what):
        number = what.removeprefix("bucket ")
        return number if number.isdigit() and number != what else self.short(what)


def joined(letters, name):
    """AR2, AR head, to host 2."""
    return f"{letters}{name}" if letters.isupper() and name[:1].isdigit() else f"{letters} {name}".strip()


def steps_of(event):
    """The optimizers in whose step it is, the outermost first."""
    return tuple(match[1] for match in map(STEP.match, event.regions) if match)


def seconds_in(events):
    return sum(event.end - event.start for event in events)


def passes(region):
    """Of a schedule, in our words (2F3, F3) or in torch's (Forward 3, PP:2F3)."""
    return OF_SCHEDULES.fullmatch(region)
