"""PyTorch's Flight Recorder: what a process has kept of the collectives that it called."""

import pickle


def flight_record():
    """A dict for each call, the oldest first, as ``torchfrtrace`` reads them. Groups of gloo and nccl are recorded."""
    from torch._C._distributed_c10d import _dump_fr_trace  # the way that torch's own tutorial goes

    return pickle.loads(_dump_fr_trace())["entries"]
