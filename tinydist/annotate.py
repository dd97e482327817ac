"""Annotations: a program marks regions, time points, and the purposes and owners of tensors. Techniques call these
functions and do not depend on the simulator or any other consumer.

    region("F3")                 names the operators and collectives issued inside
    mark("begin")                names a point in time
    purpose("communication")     purpose of tensors allocated inside
    label(tensor, "layer 1")     owner of a tensor's bytes
    own_stages(worker, stages)   which stage of a pipeline a module is
    products_in_tf32()           float32 matmuls inside run at the TF32 rate
    begin_copy, stall            an asynchronous host-device copy, and a stall of the device

The simulator installs a listener in the thread of each observed rank (tracing/observer.py). Without a listener all of
this is a no-op, except ``region``, which torch.profiler records as well.
"""

import threading
from contextlib import contextmanager, nullcontext

import torch
from torch.profiler import record_function

from .rules import validate, whole

PURPOSES = ("parameters", "gradients", "optimizer states", "activations", "communication", "other")


class ListenerOfThread(threading.local):
    listener = None


of_thread = ListenerOfThread()


def listen(listener):
    """Install a listener for this thread's annotations."""
    of_thread.listener = listener


# Names.


@validate(name=str)
def region(name):
    """``with region("F3"):`` names the operators and collectives issued inside, in the trace and for torch.profiler.

    It is ``torch.profiler.record_function``, which names regions as well; so a decorator, too.
    """
    return record_function(name)


@validate(name=str)
def mark(name):
    """Name a point in this rank's time, for ``run.between`` and others. A no-op if the run is not observed."""
    if of_thread.listener:
        of_thread.listener.mark(name)


def own_stages(pipeline, stages):
    """``stages``: number -> module."""
    if of_thread.listener:
        of_thread.listener.own_stages(pipeline, stages)


# Memory.


@contextmanager
def purpose(name):
    """Context: tensors allocated inside have the purpose ``name``, one of PURPOSES. A no-op without a memory ledger."""
    if name not in PURPOSES:
        raise ValueError(f"purpose: must be one of {', '.join(PURPOSES)}, got {name!r}")
    listener = of_thread.listener
    if listener is None:
        yield
        return
    before = listener.ask_for(name)
    try:
        yield
    finally:
        listener.ask_for(before)


@validate(tensor=torch.Tensor, shard=whole, dim=whole)
def label(tensor, owner, shard=None, dim=0):
    """Attribute the memory of ``tensor`` to ``owner``: a name, or a parameter (its name is used).

    A view labels its part of the memory, which must be contiguous. ``shard``: the rank that owns this shard, and
    ``dim`` the dimension along which the tensor is sharded: plots show rows of it, or columns.
    The first label applies retroactively, later ones from now on. A no-op if the run is not observed.
    """
    if of_thread.listener:
        of_thread.listener.label(tensor, owner, shard, dim)
    return tensor


# Time.


def products_in_tf32():
    """For this thread, which is a rank."""
    return of_thread.listener.products_in_tf32() if of_thread.listener else nullcontext()


def begin_copy(name, tensor, nbytes, seconds):
    """Start a copy of ``tensor`` to or from the device. Returns a function that waits for it."""
    listener = of_thread.listener
    return listener.begin_copy(name, tensor, nbytes, seconds) if listener else lambda: None


def under_way():
    """This rank's pending copies: a list of wait functions, if the waits are to be deferred."""
    return of_thread.listener.copies if of_thread.listener else []


def stall(name, nbytes, seconds):
    """Stall the device for ``seconds``, waiting for its host."""
    if of_thread.listener:
        of_thread.listener.stall(name, nbytes, seconds)
