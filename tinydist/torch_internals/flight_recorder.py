"""PyTorch's Flight Recorder: what a process has kept of the collectives that it called."""


def flight_record():
    """The pickle that ``torchfrtrace`` reads: its "entries" are a dict for each call, the oldest first.

    Groups of gloo and nccl are recorded.
    """
    from torch._C._distributed_c10d import _dump_fr_trace  # the way that torch's own tutorial goes

    return _dump_fr_trace()
