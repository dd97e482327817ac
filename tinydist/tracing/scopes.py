"""Scopes: the phase, module and regions that each rank is in.

    phase      forward      in the call of a module, or what autograd notes outside of one, such as a loss
               backward     in a node of autograd's graph: of the module in which the node was made
               recompute    forward once more inside of backward, as checkpoints do, or in a region "recompute"
               optimizer    in a region that torch names "Optimizer.step", "Optimizer.zero_grad"
               ""           all else: data, initialization, the program's own
    module     of the model: "blocks.3.mlp", a module by its place in the one that owns it
    regions    what the program calls it: ``region``, which is torch.profiler's ``record_function``

The program does not change. A rank's nodes have numbers, in the order in which they are made; so it is enough to note
at which number a module begins and ends, and in backward a node tells by its number which module made it.
"""

import threading
from bisect import bisect_right
from typing import NamedTuple

import torch

from ..torch_internals import checkpoint_runs, graph_task, node_running, nodes_made, number_of, own_parameters

FORWARD, RECOMPUTE, BACKWARD, OPTIMIZER, NO_PHASE = "forward", "recompute", "backward", "optimizer", ""
NO_TASK = -1  # no backward is under way
LEAF = 2**64 - 1  # the number of all nodes that accumulate a parameter's gradient


class ObservedThread(threading.local):
    """What is kept of the rank that runs in this thread, if it is observed."""

    scopes = ledger = None
    stream = None  # streams.py: None is the one that computes
    tf32 = False  # are matmuls rounded to it?
    paused = False  # is what runs no work of the program?


of_thread = ObservedThread()


class Scope(NamedTuple):
    phase: str = NO_PHASE
    module: object = ""  # its name; a ModuleName as long as the model may be built
    regions: tuple = ()  # the outermost first


class RegionBegin(NamedTuple):
    """In the record, as the two that follow."""

    name: str


class RegionEnd(NamedTuple):
    name: str


class MarkPoint(NamedTuple):
    name: str


class ScopeCache(dict):
    """(phase, name, regions) -> the one Scope of all that is alike."""

    def __missing__(self, key):
        self[key] = Scope(*key)
        return self[key]


class Scopes:
    """One rank's. ``tell(module, name, tensor)`` is called for parameters that modules have got unseen."""

    def __init__(self, program, module_names, tell=lambda *_: None):
        self.program, self.module_names, self.tell = program, module_names, tell
        self.module, self.task, self.phase, self.name, self.regions = None, NO_TASK, NO_PHASE, None, ()
        self.outside = NO_PHASE  # the phase of the rank outside of modules
        self.begins, self.made_in = [0], [None]  # from that number on, nodes are made in that module
        self.seen = 0  # how many nodes there were
        self.cache = ScopeCache()
        self._name()

    def start(self):
        """In the rank's own thread, which numbers its nodes for itself."""
        self._move()

    # Where the rank is.

    def now(self):
        if graph_task() != self.task:
            return self._in_backward()
        if self.scope.phase == NO_PHASE and nodes_made() != self.seen:
            self.seen = nodes_made()
            return self.cache[FORWARD, self.name, self.regions]
        return self.scope

    def _in_backward(self):
        node = node_running()
        if node is None:  # what was to be done at its end
            name = None
        elif (number := number_of(node)) == LEAF:
            leaf = self.module_names.find(node.variable)
            name = leaf and leaf.owner
        else:
            name = self.made_in[bisect_right(self.begins, number) - 1]
        again = torch.is_grad_enabled() and (RECOMPUTE in self.regions or checkpoint_runs())
        phase = RECOMPUTE if again else BACKWARD
        return self.cache[phase, name, self.regions]

    # Modules.

    def enter(self, module):
        before = self.module, self.task, self.phase, self.name
        name = self.module_names.of(module)
        if self.module is None and not name.is_known:
            self._look_into(module)
            name.is_known = True
        self._look_at_tensors(module)
        self.module, self.task, self.name = module, graph_task(), name
        self.phase = FORWARD if self.task == NO_TASK and RECOMPUTE not in self.regions else RECOMPUTE
        self._move()
        return before

    def leave(self, before):
        self.module, self.task, self.phase, self.name = before
        self._move()

    def _look_into(self, module):
        """What was made by no constructor on a rank: copies, shards, what there was before the launch."""
        self._look_at_tensors(module)
        for name, child in module.named_children():
            self.module_names.own(module, name, child)
            self._look_into(child)

    def _look_at_tensors(self, module):
        for name, tensor in own_parameters(module).items():
            if tensor is not None and self.module_names.find(tensor) is None:
                self.tell(module, name, tensor)

    def _move(self):
        self.seen = nodes_made()
        if self.begins[-1] == self.seen:
            self.made_in[-1] = self.name
        else:
            self.begins.append(self.seen)
            self.made_in.append(self.name)
        self._name()

    def _name(self):
        self.scope = self.cache[self.phase or self.outside, self.name, self.regions]

    # Regions and marks.

    def begin(self, region):
        self.program.append(RegionBegin(region))
        self._be_in((*self.regions, region))

    def end(self):
        *regions, last = self.regions
        self.program.append(RegionEnd(last))
        if self.module is not None:
            self._look_at_tensors(self.module)  # fully_shard gathers them in a region
        self._be_in(tuple(regions))

    def _be_in(self, regions):
        self.regions = regions
        self.outside = OPTIMIZER if any(name.startswith("Optimizer.") for name in regions) else NO_PHASE
        self._name()
