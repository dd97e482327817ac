"""torch.save and torch.load of tensors on pretended GPUs: a file says which GPU, and they return there.

    torch.save(model.state_dict())          each storage has the tag "cuda:0"
    torch.load(path)                        back to cuda:0, on every rank: pass map_location
    torch.load(path, map_location="cpu")    to the host

On a machine without GPUs such a file needs ``map_location``, as one that was written on GPUs does. A forecast writes no
file of what is on a GPU, which has no data.
"""

import torch
from torch._subclasses import FakeTensor
from torch.serialization import register_package

from ..torch_internals import untyped
from .rank_gpus import mine, of_thread
from .storages import hold

BEFORE_TORCHS_OWN = 5
write = torch.save


def tag(storage):
    holding = of_thread.gpus and of_thread.gpus.ledger.alive.get(untyped(storage)._cdata)
    return str(holding.device) if holding else None


def restore(storage, location):
    gpus = of_thread.gpus
    if gpus is None or not location.startswith("cuda"):
        return None
    hold(untyped(storage), gpus.device(torch.device(location)))
    return storage


register_package(BEFORE_TORCHS_OWN, tag, restore)


def save_if_known(obj, f, *args, **options):
    """``torch.save`` in a forecast."""
    if of_thread.gpus is None or not has_fakes(obj):
        return write(obj, f, *args, **options)
    mine().note("torch.save", "no file: what is on a GPU has no data")


def has_fakes(value):
    parts = value.values() if isinstance(value, dict) else value if isinstance(value, list | tuple | set) else ()
    return isinstance(getattr(value, "_local_tensor", value), FakeTensor) or any(map(has_fakes, parts))
