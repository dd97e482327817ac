"""Memory snapshots: what torch.cuda.memory records of its allocator, answered from the rank's ledger.

    torch.cuda.memory._record_memory_history()             from here on, each allocation and each free is kept
    torch.cuda.memory._dump_snapshot("snapshot.pickle")    for pytorch.org/memory_viz, python -m torch.cuda._memory_viz

Instead of a Python stack each has one frame: the parameter or module that the bytes belong to, and their purpose.
No memory is cached, so each tensor is a segment of its own, and nothing is fragmented. Format: torch/cuda/memory.py,
_snapshot.
"""

import pickle

from ..tracing.ledger import StorageChange
from .rank_gpus import mine

STREAM, POOL = 0, (0, 0)
LARGE = 2**20  # bytes: the allocator keeps smaller blocks apart


def _record_memory_history(enabled="all", *args, **options):
    """``enabled=None`` stops and forgets."""
    gpus = mine()
    gpus.history = None if enabled is None else len(gpus.record.programs[gpus.rank])


def _snapshot(device=None, augment_with_fx_traces=False):
    gpus = mine()
    history = gpus.record.programs[gpus.rank]
    since = len(history) if gpus.history is None else gpus.history
    addresses, traced, end = {}, [], 0
    for place, change in enumerate(history):
        if isinstance(change, StorageChange):
            address = addresses.setdefault(id(change.holding), end)
            end = max(end, address + max(change.before, change.after))
            if place >= since:
                traced += entries(change, address)
    alive = [holding for holding in gpus.ledger.alive.values() if id(holding) in addresses]
    segments = [segment(holding, addresses[id(holding)]) for holding in alive]
    traces = [traced if number == gpus.index else [] for number in range(len(gpus.visible))]
    return {"segments": segments, "device_traces": traces, "allocator_settings": {}}


def _dump_snapshot(filename="dump_snapshot.pickle", augment_with_fx_traces=False):
    with open(filename, "wb") as file:
        pickle.dump(_snapshot(), file)


def entries(change, address):
    """A storage that is resized is freed and allocated."""
    if change.before:
        yield entry("free_requested", change.before, change.holding, address)
        yield entry("free_completed", change.before, change.holding, address)
    if change.after:
        yield entry("alloc", change.after, change.holding, address)


def entry(action, nbytes, holding, address):
    return {
        "action": action,
        "addr": address,
        "size": nbytes,
        "stream": STREAM,
        "pool_id": POOL,
        "frames": frames_of(holding),
    }


def frames_of(holding):
    labels = [str(label) for _, label, _ in holding.labels(0, holding.nbytes) if label is not None and str(label)]
    scope = holding.scope
    whose = labels[0] if labels else scope.regions[-1] if scope.regions else scope.phase
    return [{"filename": whose or "program", "line": 0, "name": holding.purpose}]


def segment(holding, address):
    size = holding.nbytes
    block = {"address": address, "size": size, "requested_size": size, "state": "active_allocated"}
    return {
        "device": holding.device.index or 0,
        "address": address,
        "total_size": size,
        "allocated_size": size,
        "active_size": size,
        "stream": STREAM,
        "segment_type": "large" if size > LARGE else "small",
        "segment_pool_id": POOL,
        "blocks": [block | {"frames": frames_of(holding)}],
    }
