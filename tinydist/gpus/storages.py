"""Where storages are, as their tensors: attributes of torch.UntypedStorage while ranks run."""

import torch

from ..tracing.scopes import of_thread as observed
from .device_checks import HOST
from .overridable import of_rank
from .rank_gpus import mine, of_thread

Storage = torch.UntypedStorage


def device_of(storage):
    holding = of_thread.gpus.ledger.alive.get(storage._cdata)
    return holding.device if holding else real["device"].__get__(storage)


def is_cuda(storage):
    return device_of(storage).type == "cuda"


def hold(storage, device):
    """Count a storage that is new on a GPU, and that no operator has returned."""
    mine().ledger.device = device
    mine().ledger.adopt(storage, observed.scopes.now())
    return storage


def copied(storage, device):
    new = Storage(storage.nbytes()).copy_(storage, False)
    return hold(new, device) if device.type == "cuda" else new


def to(self, *, device, non_blocking=False):
    device = mine().device(device)
    return self if device == self.device else copied(self, device)


def cuda(self, device=None, non_blocking=False):
    return to(self, device=mine().device(device))


def cpu(self):
    return to(self, device=HOST) if of_thread.gpus else real["cpu"](self)


def clone(self):
    return copied(self, self.device) if of_thread.gpus else real["clone"](self)


METHODS = {"to": to, "cuda": cuda, "cpu": cpu, "clone": clone}
PROPERTIES = {"device": device_of, "is_cuda": is_cuda}
real = {name: getattr(Storage, name) for name in METHODS | PROPERTIES}
OF_STORAGES = METHODS | {name: of_rank(attribute, real[name]) for name, attribute in PROPERTIES.items()}
