"""What a program says about itself: what it does, what its tensors are for and whose they are, what its device does
meanwhile. Techniques say it, and know nothing of who hears it.

    region("F3")                 what is computed and issued inside has that name
    mark("begin")                so has a moment
    purpose("communication")     what is made inside is for that
    label(tensor, "layer 1")     whose bytes those of a tensor are
    own_stages(worker, stages)   which stage of a pipeline a module is
    products_in_tf32()           float32 products inside go at the rate of TF32
    begin_copy, stall            the device and its host: a copy that goes on, and work that is waited for

A simulator listens, in the thread of each rank that it observes (tracing/listener.py). Where nobody listens, all of
this does nothing, but for ``region``, which torch.profiler hears as well.
"""

import threading
from contextlib import contextmanager, nullcontext

import torch
from torch.profiler import record_function

from .rules import takes, whole

PURPOSES = ("parameters", "gradients", "optimizer states", "activations", "communication", "other")


class OfThread(threading.local):
    listener = None


of_thread = OfThread()


def listen(listener):
    """From now on, to what this thread says."""
    of_thread.listener = listener


# Names.


@takes(name=str)
def region(name):
    """``with region("F3"):`` what is computed and issued inside has that name, in the trace and for torch.profiler.

    It is ``torch.profiler.record_function``, which names regions as well; so a decorator, too.
    """
    return record_function(name)


@takes(name=str)
def mark(name):
    """A moment of this rank with a name, for ``run.between`` and others. Where nothing is observed it does nothing."""
    if of_thread.listener:
        of_thread.listener.mark(name)


def own_stages(pipeline, stages):
    """``stages``: number -> module."""
    if of_thread.listener:
        of_thread.listener.own_stages(pipeline, stages)


# Memory.


@contextmanager
def purpose(name):
    """What is made while this lasts is for ``name``, one of PURPOSES. Where no ledger is kept it does nothing."""
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


@takes(tensor=torch.Tensor, shard=whole, dim=whole)
def label(tensor, whose, shard=None, dim=0):
    """``tensor`` holds what belongs to ``whose``: a name, or a parameter whose name it has.

    A view labels its part of the memory, which must be in one piece. ``shard``: the rank whose part of the whole it is,
    and ``dim`` the dimension along which the whole is cut: pictures show rows of it, or columns.
    A first label holds from the start, another one from now on. Where nothing is observed it does nothing.
    """
    if of_thread.listener:
        of_thread.listener.label(tensor, whose, shard, dim)
    return tensor


# Time.


def products_in_tf32():
    """For this thread, which is a rank."""
    return of_thread.listener.products_in_tf32() if of_thread.listener else nullcontext()


def begin_copy(name, tensor, nbytes, seconds):
    """Of ``tensor``, on the device, or to it. What is to be called when it must have ended."""
    listener = of_thread.listener
    return listener.begin_copy(name, tensor, nbytes, seconds) if listener else lambda: None


def under_way():
    """Of this rank: a list for what waits for the ends of copies, if that is to be done later."""
    return of_thread.listener.copies if of_thread.listener else []


def stall(name, nbytes, seconds):
    """The device waits ``seconds`` for its host."""
    if of_thread.listener:
        of_thread.listener.stall(name, nbytes, seconds)
