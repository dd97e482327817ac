"""When each tensor of a program is alive, and which may reuse the memory of one that ends.

    step 3    y = tanh(x)      x is read for the last time: y is written over it, number by number

A kernel reads an element before it writes the same one, so a result with the shape, strides and dtype of something that
the kernel reads last may have its bytes (*in place*, or donation). Views have no bytes of their own: what is read
through a view is alive until then.
"""

import torch
from torch.utils._pytree import tree_leaves

from .graph import is_view, results, value
from .kernel import Kernel
from .memory_plan import Buffer
from .operators import summed_rows

aten = torch.ops.aten
INTO = {  # torch's operators that write where they are told
    aten.mm.default: aten.mm.out,
    aten.bmm.default: aten.bmm.out,
    aten.sum.dim_IntList: aten.sum.IntList_out,
}


def home(node):
    """The node that made the bytes."""
    return home(node.args[0]) if is_view(node) else node


def reads(step):
    return step.reads if isinstance(step, Kernel) else step.all_input_nodes


def writes(step):
    return step.writes if isinstance(step, Kernel) else [] if is_view(step) else [step]


def lifetimes(steps, graph):
    """{node: Buffer} of all that steps make. What the graph returns lives on behind the last step."""
    made = {node: place for place, step in enumerate(steps) for node in writes(step)}
    used = {home(node): place for place, step in enumerate(steps) for node in reads(step)}
    used |= {home(node): len(steps) for node in results(graph)}
    nbytes = {node: sum(each.nbytes for each in tree_leaves(value(node))) for node in made}
    return {node: Buffer(nbytes[node], first, max(first, used.get(node, first))) for node, first in made.items()}


def plannable(steps, lives):
    """Those that are not returned, and that are written where the program says."""
    told = [step for step in steps if isinstance(step, Kernel) or step.target in INTO]
    return {node for step in told for node in writes(step) if lives[node].last < len(steps)}


def write_in_place(steps, lives, planned):
    """Tell each kernel what it may write over what; gives {what is written: what it is written over}."""
    over = {}
    for place, kernel in enumerate(steps):
        if isinstance(kernel, Kernel):
            homes = [home(node) for node in kernel.reads]  # read in two ways, an element is needed twice
            ending = [node for node, its in zip(kernel.reads, homes) if its in planned and homes.count(its) == 1]
            ending = [node for node in ending if lives[home(node)].last == place]
            for node in [node for node in kernel.writes if node in planned and not summed_rows(node)]:
                like = next((each for each in ending if alike(kernel, node, each)), None)
                if like:
                    ending.remove(like)
                    over[node], kernel.in_place[node] = home(like), like
    return over


def alike(kernel, node, read):
    same = kernel.strides(node) == kernel.strides(read) and value(node).dtype == value(read).dtype
    return same and value(node).nbytes == value(home(read)).nbytes
