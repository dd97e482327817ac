"""Private names of torch: hooks into operators, autograd, module calls and module conversion."""

import os
import sys
import threading
from contextlib import contextmanager
from operator import attrgetter, methodcaller

import torch
import torch.distributed.distributed_c10d
import torch.nn.parallel.distributed
import torch.utils.checkpoint
from torch import nn

from .profiling import profiled

TINYDIST = os.path.dirname(os.path.dirname(__file__)) + os.sep

copy_all = torch._foreach_copy_  # (destinations, sources)
multiply_and_check = torch._amp_foreach_non_finite_check_and_unscale_  # (tensors, found, factor): found 1 if inf or NaN
graph_task = torch._C._current_graph_task_id  # of the backward under way in this thread; -1 if there is none
node_running = torch._C._current_autograd_node  # in it; None before the first and after the last
nodes_made = torch._C._autograd._get_sequence_nr  # by this thread: the number of the next one
number_of = methodcaller("_sequence_nr")  # of a node
own_parameters = attrgetter("_parameters")  # of a module: name -> tensor or None
AS_DEEP = 8  # frames of torch.distributed, from a collective to the object collective that calls it
NATIVE_WAITERS = {torch.autograd.graph.__file__, torch.nn.parallel.distributed.__file__}


def load_for_modes():
    """What the first operator under a dispatch mode would load, on a rank: it takes a second or two."""
    import torch._dynamo  # noqa: F401


class unobserved(torch.inference_mode):
    """Context for data movement between ranks: disables autograd, dispatch modes and tensor subclasses."""

    def __enter__(self):
        super().__enter__()
        self.guard = torch._C._DisableTorchDispatch()
        self.profiled = threading.get_ident() in profiled
        if self.profiled:
            torch._C._autograd._enable_record_function(False)

    def __exit__(self, *error):
        if self.profiled:
            torch._C._autograd._enable_record_function(True)
        del self.guard
        super().__exit__(*error)


def dispatch_is_seen():
    """Do operators of this thread come to the dispatch mode that counts them? A program may have switched it off."""
    excluded = torch._C._dispatch_tls_is_dispatch_key_excluded(torch._C.DispatchKey.Python)
    return not excluded and torch._C._len_torch_dispatch_stack() > 0


def in_backward():
    """Is a node of the autograd graph being run in this thread?"""
    return node_running() is not None


def checkpoint_runs():
    """Does the call come from inside torch.utils.checkpoint?"""
    return called_from({torch.utils.checkpoint.__file__})


def before_backward_ends(callback):
    """Call ``callback`` when all nodes have run, before the callbacks that are queued after it."""
    torch.autograd.Variable._execution_engine.queue_callback(callback)


def native_code_will_wait():
    """Does the call come from inside DDP or the autograd engine, which wait for futures in C++?"""
    return called_from(NATIVE_WAITERS)


def native_code_calls():
    """Was the calling function called by C++, in backward? (By DDP, say.)"""
    return sys._getframe(2).f_code.co_filename == torch.autograd.graph.__file__


def c10d_calls():
    """Does torch.distributed's Python call the group, with the program's tensors? DDP and functional collectives call
    it in C++, with new ones, and object collectives with those that objects are packed in."""
    frame = sys._getframe(1)
    while frame.f_code.co_filename.startswith(TINYDIST):
        frame = frame.f_back
    own = torch.distributed.distributed_c10d.__file__
    if frame.f_code.co_filename != own:
        return False
    for _ in range(AS_DEEP):
        if frame.f_code.co_filename == own and "object" in frame.f_code.co_name:
            return False
        frame = frame.f_back
        if frame is None:
            break
    return True


def called_from(files):
    frame = sys._getframe(1)
    while frame is not None and frame.f_code.co_filename not in files:
        frame = frame.f_back
    return frame is not None


@contextmanager
def conversions_told(tell):
    """``tell(module)`` when ``module.to(...)`` or its like has given its tensors other memory."""
    convert = nn.Module._apply

    def convert_and_tell(module, *args, **kwargs):
        convert(module, *args, **kwargs)
        tell(module)
        return module

    nn.Module._apply = convert_and_tell
    try:
        yield
    finally:
        nn.Module._apply = convert


@contextmanager
def module_calls_told(told):
    """While this lasts, modules are called by ``told(call)``. Not by another ``__call__``: to replace that, Python goes
    through all classes of modules that there are."""
    call = nn.Module._call_impl
    nn.Module._call_impl = told(call)
    try:
        yield
    finally:
        nn.Module._call_impl = call
