"""Names: in which pass a rank is, of which part of the model, and in which regions.

    during     forward      in the call of a module, or what autograd notes outside of one, such as a loss
               backward     in a node of autograd's graph: of the module in which the node was made
               recompute    forward once more inside of backward, as checkpoints do, or in a region "recompute"
               optimizer    in a region that torch names "Optimizer.step", "Optimizer.zero_grad"
               ""           all else: data, initialization, the program's own
    part       of the model: "blocks.3.mlp", a module by its place in the one that owns it
    regions    what the program calls it: ``region``, which is torch.profiler's ``record_function``

The program does not change. A rank's nodes have numbers, in the order in which they are made; so it is enough to note
at which number a module begins and ends, and in backward a node tells by its number whose it is.
"""

import threading
from bisect import bisect_right
from contextlib import contextmanager
from functools import partial
from typing import NamedTuple
from weakref import ref

import torch
from torch import nn
from torch.profiler import record_function

from ..rules import takes
from .torch_internals import (
    checkpoint_runs,
    graph_task,
    node_running,
    nodes_made,
    number_of,
    own_parameters,
    pipeline_passes_told,
)

FORWARD, RECOMPUTE, BACKWARD, OPTIMIZER, NO_PASS = "forward", "recompute", "backward", "optimizer", ""
NO_TASK = -1  # no backward is under way
LEAF = 2**64 - 1  # the number of all nodes that accumulate a parameter's gradient
OF_SCHEDULES = ("Forward ", "Backward ", "PP:")  # the regions that torch's make around passes
WRAPPERS = {"_orig_mod", "_checkpoint_wrapped_module", "_fsdp_wrapped_module"}  # torch's, inside of a name

of_thread = threading.local()  # .names: those of the rank


class Where(NamedTuple):
    during: str = NO_PASS
    part: object = ""  # its name; a Part as long as the model may be built
    regions: tuple = ()  # the outermost first


class Begin(NamedTuple):
    """Of a region."""

    name: str


class End(NamedTuple):
    name: str


class Mark(NamedTuple):
    name: str


class Part:
    """A module or a parameter. Its name is known when all is built: ``str(part)``, "blocks.3.mlp.weight"."""

    __slots__ = ("is_known", "name", "nbytes", "owner")

    def __init__(self):
        self.name, self.owner = "", None
        self.nbytes = 0  # of a parameter, whole
        self.is_known = False  # has everything in a module been looked at?

    def belong_to(self, owner, name):
        """The first owner counts: a stage of a pipeline takes layers from a model that has named them."""
        if self.owner is None and self not in owner.path():
            self.owner, self.name = owner, name

    def path(self):
        """From here to the outermost."""
        part = self
        while part is not None:
            yield part
            part = part.owner

    def __str__(self):
        names = [part.name for part in self.path()][-2::-1]
        while names[:1] == ["module"]:  # as DDP and others name what they wrap
            del names[0]
        return ".".join([name for name in names if name not in WRAPPERS])


class Parts:
    """Those of all ranks."""

    def __init__(self):
        self.known = {}  # address of a module or a parameter -> Part
        self.watched = {}  # the same -> a weak reference, which forgets the address when it is free for another

    def find(self, thing):
        return self.known.get(id(thing))

    def of(self, thing):
        address = id(thing)
        part = self.known.get(address)
        if part is None:
            part = self.known[address] = Part()
            self.watched[address] = ref(thing, partial(self._gone, address))
        return part

    def own(self, owner, name, child):
        """A module has another one, or a tensor, under that name; or None, where there could be one."""
        if child is None:
            return
        part = self.of(child)
        part.belong_to(self.of(owner), name)
        if isinstance(child, torch.Tensor):
            part.nbytes = child.numel() * child.itemsize

    def own_stage(self, pipeline, number, module):
        """A stage of a pipeline: modules made for one stage each would else all have the same names."""
        self.of(module).belong_to(self.of(pipeline), f"stage {number}")

    def _gone(self, address, reference):
        if self.watched.get(address) is reference:
            del self.known[address], self.watched[address]


class Names:
    """One rank's. ``tell(module, name, tensor)`` is called for parameters that modules have got unseen."""

    def __init__(self, program, parts, tell=lambda *_: None):
        self.program, self.parts, self.tell = program, parts, tell
        self.module, self.task, self.during, self.part, self.regions = None, NO_TASK, NO_PASS, None, ()
        self.outside = NO_PASS  # the pass in which the rank is outside of modules
        self.begins, self.made_in = [0], [None]  # from that number on, nodes are made in that Part
        self.seen = 0  # how many nodes there were
        self._name()

    def start(self):
        """In the rank's own thread, which numbers its nodes for itself."""
        self._move()

    # Where the rank is.

    def now(self):
        if graph_task() != self.task:
            return self._in_backward()
        if self.where.during == NO_PASS and nodes_made() != self.seen:
            self.seen = nodes_made()
            return self.where._replace(during=FORWARD)
        return self.where

    def _in_backward(self):
        node = node_running()
        if node is None:  # what was to be done at its end
            part = None
        elif (number := number_of(node)) == LEAF:
            leaf = self.parts.find(node.variable)
            part = leaf and leaf.owner
        else:
            part = self.made_in[bisect_right(self.begins, number) - 1]
        during = RECOMPUTE if torch.is_grad_enabled() and checkpoint_runs() else BACKWARD
        where = self.in_backward.get((during, part))
        if where is None:
            where = self.in_backward[during, part] = Where(during, part, self.regions)
        return where

    # Modules.

    def enter(self, module):
        before = self.module, self.task, self.during, self.part
        part = self.parts.of(module)
        if self.module is None and not part.is_known:
            self._look_into(module)
            part.is_known = True
        self._look_at_tensors(module)
        self.module, self.task, self.part = module, graph_task(), part
        self.during = FORWARD if self.task == NO_TASK and RECOMPUTE not in self.regions else RECOMPUTE
        self._move()
        return before

    def leave(self, before):
        self.module, self.task, self.during, self.part = before
        self._move()

    def _look_into(self, module):
        """What was made by no constructor on a rank: copies, shards, what there was before the launch."""
        self._look_at_tensors(module)
        for name, child in module.named_children():
            self.parts.own(module, name, child)
            self._look_into(child)

    def _look_at_tensors(self, module):
        for name, tensor in own_parameters(module).items():
            if tensor is not None and self.parts.find(tensor) is None:
                self.tell(module, name, tensor)

    def _move(self):
        self.seen = nodes_made()
        if self.begins[-1] == self.seen:
            self.made_in[-1] = self.part
        else:
            self.begins.append(self.seen)
            self.made_in.append(self.part)
        self._name()

    def _name(self):
        self.where = Where(self.during or self.outside, self.part, self.regions)
        self.in_backward = {}  # (during, part) -> Where

    # Regions and marks.

    def begin(self, region):
        self.program.append(Begin(region))
        self._be_in((*self.regions, region))

    def end(self):
        *regions, last = self.regions
        self.program.append(End(last))
        if self.module is not None:
            self._look_at_tensors(self.module)  # fully_shard gathers them in a region
        self._be_in(tuple(regions))

    def _be_in(self, regions):
        self.regions = regions
        self.outside = OPTIMIZER if any(name.startswith("Optimizer.") for name in regions) else NO_PASS
        self._name()


@contextmanager
def calls_told():
    """While this lasts, the names of a rank know which module is called."""
    call = nn.Module.__call__

    def call_and_tell(self, *args, **kwargs):  # torch's profiler looks for its local variable "self"
        names = getattr(of_thread, "names", None)
        if names is None:
            return call(self, *args, **kwargs)
        before = names.enter(self)
        try:
            return call(self, *args, **kwargs)
        finally:
            names.leave(before)

    nn.Module.__call__ = call_and_tell
    try:
        with pipeline_passes_told(in_pass):
            yield
    finally:
        nn.Module.__call__ = call


@contextmanager
def in_pass(stage, letter, microbatch):
    """torch's stage runs a pass. Some of torch's schedules name it, and some do not."""
    names = getattr(of_thread, "names", None)
    if names is not None:
        names.parts.own_stage(stage, stage.stage_index, stage.submod)
    if names is None or any(name.startswith(OF_SCHEDULES) for name in names.regions):
        yield
    else:
        with region(f"{stage.stage_index}{letter}{microbatch}"):
            yield


def own_stages(pipeline, stages):
    """``stages`` of ours: number -> module."""
    names = getattr(of_thread, "names", None)
    if names is not None:
        for number, module in stages.items():
            names.parts.own_stage(pipeline, number, module)


@takes(name=str)
def region(name):
    """``with region("F3"):`` what is computed and issued inside has that name, in the trace and for torch.profiler.

    It is ``torch.profiler.record_function``, which names regions as well; so a decorator, too.
    """
    return record_function(name)


@takes(name=str)
def mark(name):
    """A moment of this rank with a name, for ``run.between`` and others. Where nothing is observed it does nothing."""
    names = getattr(of_thread, "names", None)
    if names is not None:
        names.program.append(Mark(name))
