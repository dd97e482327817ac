"""What a process hands to another: a copy, as pickle makes it; tensors, queues and the like are shared, not copied."""

import io
import pickle

import torch


class Handover:
    """``thing``, to be copied wherever it is unpacked. ``forked``: what has no pickle is handed over as it is."""

    def __init__(self, thing, forked=False):
        self.shared, file = [], io.BytesIO()
        pickler = pickle.Pickler(file)
        pickler.persistent_id = self._number_of
        try:
            pickler.dump(thing)
            self.content = file.getvalue()
        except Exception:
            if not forked:
                raise
            self.content, self.thing = None, thing

    def _number_of(self, thing):
        if not is_shared(thing):
            return None
        self.shared.append(thing)
        return len(self.shared) - 1

    def unpack(self):
        if self.content is None:
            return self.thing
        unpickler = pickle.Unpickler(io.BytesIO(self.content))
        unpickler.persistent_load = lambda number: same_memory(self.shared[number])
        return unpickler.load()


def is_shared(thing):
    kind = type(thing)
    return isinstance(thing, torch.Tensor) or kind.__module__.startswith(("multiprocessing.", SHARED))


SHARED = f"{__package__}.shared_objects"


def same_memory(thing):
    """A tensor of its own, on the same memory, as processes have it; anything else is the same object."""
    if not isinstance(thing, torch.Tensor):
        return thing
    detached = thing.detach()
    if isinstance(thing, torch.nn.Parameter):
        return torch.nn.Parameter(detached, thing.requires_grad)
    return detached.requires_grad_(thing.requires_grad)
