"""The collectives that a real process has called, as PyTorch's own Flight Recorder kept them."""

from ..simulator.torch_internals.flight_recorder import flight_record


def calls_recorded_in(program):
    """(operation, line) of each collective that ``program`` called in this process, in their order."""
    return [
        (entry["profiling_name"].removeprefix("gloo:"), frame["line"])
        for entry in flight_record()
        for frame in entry["frames"]
        if frame["name"] == program.__name__
    ]
