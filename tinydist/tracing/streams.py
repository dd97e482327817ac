"""Streams of a GPU on simulated ranks: ``torch.cpu``'s streams and events do nothing; here they are recorded.

    with device.stream(gathering):            what follows is queued on another stream
        all_gather(...)                       of which the collective's end is awaited, not of the one that computes
        event = gathering.record_event()
    device.current_stream().wait_event(event) now the one that computes waits too

Programs that are written for GPUs, such as ``fully_shard``, run on CPU tensors with the same calls. The record keeps
them in the order of the program, and the clock does what a GPU would (lanes.py). Results are the same with and without.
"""

from contextlib import contextmanager
from typing import NamedTuple

import torch

from .scopes import Scope, of_thread


class StreamSwitch(NamedTuple):
    """In the record: operators, transfers and waits from here on are of this stream."""

    stream: "Stream"


class Signal:
    """In the record: what was queued on ``stream`` until here is awaited by some other."""

    __slots__ = ("stream",)

    def __init__(self, stream):
        self.stream = stream


class StreamWait(NamedTuple):
    """In the record: ``stream`` goes on when the signal is there."""

    transfer: Signal  # under the name that it has in Wait
    scope: Scope
    stream: "Stream"


class HostWait(NamedTuple):
    """In the record: the CPU waits until the signal is there, and launches what follows then, on whatever stream."""

    transfer: Signal
    scope: Scope


def append(entry):
    if of_thread.scopes is not None:
        of_thread.scopes.program.append(entry)


def host_waits(signal=None):
    """The CPU of this rank waits for a signal, or for what it has queued on the current stream."""
    if of_thread.scopes is None:
        return
    if signal is None:
        signal = Signal(current_stream())
        append(signal)
    append(HostWait(signal, of_thread.scopes.now()))


class Stream:
    stream_id = cuda_stream = 0  # a number of the driver's

    def __init__(self, device=None, priority=0, **_):
        self.priority = priority
        self.entered = []  # contexts in which it is the current one

    def __enter__(self):
        self.entered.append(stream(self))
        self.entered[-1].__enter__()
        return self

    def __exit__(self, *error):
        return self.entered.pop().__exit__(*error)

    def query(self):
        return True

    def is_capturing(self):
        return False

    def record_event(self, event=None):
        event = event or Event()
        event.record(self)
        return event

    def wait_event(self, event):
        if event.signal is not None and of_thread.scopes is not None:
            append(StreamWait(event.signal, of_thread.scopes.now(), self))

    def wait_stream(self, stream):
        self.wait_event(stream.record_event())

    def synchronize(self):
        host_waits(self.record_event().signal)


class Event:
    def __init__(self, **_):
        self.signal = None  # the last one

    def record(self, stream=None):
        self.signal = Signal(stream or current_stream())
        append(self.signal)

    def wait(self, stream=None):
        (stream or current_stream()).wait_event(self)

    def query(self):
        return True

    def synchronize(self):
        if self.signal is not None:
            host_waits(self.signal)


MAIN = Stream()  # of each rank: the one that computes


def current_stream(device=None):
    return of_thread.stream or MAIN


def switch_to(stream):
    of_thread.stream = stream
    append(StreamSwitch(stream))


@contextmanager
def stream(stream):
    """torch's: with None it does nothing."""
    before, of_thread.stream = of_thread.stream, stream or of_thread.stream
    append(StreamSwitch(current_stream()))
    try:
        yield
    finally:
        of_thread.stream = before
        append(StreamSwitch(current_stream()))


@contextmanager
def streams_recorded():
    """While this lasts, ``torch.cpu`` has these streams; ``torch.accelerator`` too, which fully_shard asks once."""
    ours = {"Stream": Stream, "Event": Event, "stream": stream, "current_stream": current_stream}
    before = {name: getattr(torch.cpu, name) for name in ours}
    accelerators = torch.accelerator.current_stream
    vars(torch.cpu).update(ours)
    torch.accelerator.current_stream = current_stream
    try:
        yield
    finally:
        vars(torch.cpu).update(before)
        torch.accelerator.current_stream = accelerators
