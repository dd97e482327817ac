"""torch.cuda's streams and events, on those that the simulator records. Each is called as torch's of its name."""

import weakref
from contextlib import contextmanager

from ..annotate import mark, region
from ..tracing import streams
from .rank_gpus import mine


class Stream(streams.Stream):
    def __init__(self, device=None, priority=0, **_):
        super().__init__(priority=priority)
        self.of_device = mine().device(device)
        mine().streams.append(weakref.ref(self))


def device_of_stream(stream):
    return getattr(stream, "of_device", mine().current)


class Event(streams.Event):
    def __init__(self, enable_timing=False, blocking=False, interprocess=False, **_):
        super().__init__()
        self.enable_timing = enable_timing

    def record(self, stream=None):
        super().record(stream)
        return self

    def elapsed_time(self, end_event):
        """Milliseconds of virtual time."""
        if not (self.enable_timing and end_event.enable_timing):
            raise RuntimeError("Both events must be created with argument 'enable_timing=True'.")
        if self.signal is None or end_event.signal is None:
            raise RuntimeError("Both events must be recorded before calculating elapsed time.")
        began, ended = mine().times_of(self.signal, end_event.signal)
        return (ended - began) * 1e3


def current_stream(device=None):
    return streams.current_stream()


def default_stream(device=None):
    return streams.MAIN


def set_stream(stream):
    streams.switch_to(stream)


def stream(stream):
    return streams.stream(stream)


StreamContext = stream


def synchronize(device=None):
    """The CPU waits for all streams."""
    alive = [stream for stream in (found() for found in mine().streams) if stream is not None]
    mine().streams[:] = map(weakref.ref, alive)
    for stream in (streams.MAIN, *alive):
        stream.synchronize()


def is_current_stream_capturing():
    return False


class NVTX:
    """Ranges are regions of the trace."""

    @staticmethod
    def range_push(msg):
        mine().ranges.append(region(msg))
        mine().ranges[-1].__enter__()
        return len(mine().ranges)

    @staticmethod
    def range_pop():
        if mine().ranges:
            mine().ranges.pop().__exit__(None, None, None)
        return len(mine().ranges)

    @staticmethod
    def mark(msg):
        mark(msg)

    @staticmethod
    @contextmanager
    def range(msg, *args, **kwargs):
        with region(msg.format(*args, **kwargs)):
            yield
