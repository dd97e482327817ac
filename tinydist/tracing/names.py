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
from typing import NamedTuple

import torch

from ..torch_internals import checkpoint_runs, graph_task, node_running, nodes_made, number_of, own_parameters

FORWARD, RECOMPUTE, BACKWARD, OPTIMIZER, NO_PASS = "forward", "recompute", "backward", "optimizer", ""
NO_TASK = -1  # no backward is under way
LEAF = 2**64 - 1  # the number of all nodes that accumulate a parameter's gradient


class OfThread(threading.local):
    """What is kept of the rank that runs in this thread, if it is observed."""

    names = ledger = None
    tf32 = False  # are products rounded to it?


of_thread = OfThread()


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


class Wheres(dict):
    """(during, part, regions) -> the one Where of all that is alike."""

    def __missing__(self, key):
        self[key] = Where(*key)
        return self[key]


class Names:
    """One rank's. ``tell(module, name, tensor)`` is called for parameters that modules have got unseen."""

    def __init__(self, program, parts, tell=lambda *_: None):
        self.program, self.parts, self.tell = program, parts, tell
        self.module, self.task, self.during, self.part, self.regions = None, NO_TASK, NO_PASS, None, ()
        self.outside = NO_PASS  # the pass in which the rank is outside of modules
        self.begins, self.made_in = [0], [None]  # from that number on, nodes are made in that Part
        self.seen = 0  # how many nodes there were
        self.wheres = Wheres()
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
            return self.wheres[FORWARD, self.part, self.regions]
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
        return self.wheres[during, part, self.regions]

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
        self.where = self.wheres[self.during or self.outside, self.part, self.regions]

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
