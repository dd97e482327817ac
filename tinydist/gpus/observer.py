"""The observer of a rank with a pretended GPU: records what runs there, and nothing that runs on the host."""

from contextlib import nullcontext

import torch

from ..hardware.costs import p2p_time
from ..hardware.links import PCIE_4
from ..torch_internals import REGION_BEGINS, REGION_ENDS, dtensors_draw_under
from ..tracing.observer import ASKS_DEVICE, Observer
from ..tracing.scopes import of_thread
from ..tracing.streams import host_waits
from ..tracing.tensor_storage import PLAIN, plain_tensors
from .cuda_memory import out_of_host_memory, out_of_memory
from .placement import COPIES, HOST, call, new_tensors_on
from .random_numbers import check_generator

ALWAYS = set(map(id, (ASKS_DEVICE, REGION_BEGINS, REGION_ENDS)))  # of no device
RANDOM = torch.Tag.nondeterministic_seeded
READS = {torch.Tag.data_dependent_output, torch.Tag.dynamic_output_shape}
about = {}  # address of an operator -> (does it draw random numbers? does the CPU wait for its result?)
INTO = torch.ops.aten.copy_.default  # the second operand, and the first is written
BY_MASK = {"index", "index_put", "index_put_"}  # count the True ones first


class GPUObserver(Observer):
    """``gpus``: the rank's RankGPUs."""

    def __init__(self, record, rank, gpus):
        super().__init__(record, rank)
        self.gpus = gpus
        self.placement = gpus.placement

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        if id(func) in ALWAYS or not PLAIN.issuperset(types) or of_thread.paused:
            return super().__torch_dispatch__(func, types, args, kwargs)
        if kwargs and kwargs.get("device") is not None and kwargs["device"].type == "cuda":
            with new_tensors_on(self.gpus.device(kwargs["device"])):
                return self.__torch_dispatch__(func, types, args, kwargs | {"device": HOST})
        if kwargs and kwargs.get("pin_memory"):
            return self._pinned(func, types, args, kwargs)
        device = self.placement.of_operator(func, args, kwargs)
        if kwargs and "generator" in kwargs:
            check_generator(kwargs["generator"] and call.generator, device)
        if id(func) in COPIES:
            return self._copy(func, args, kwargs or {}, device)
        if device.type != "cuda":
            return func(*args, **kwargs or {})
        return self._on_gpu(device, func, args, kwargs)

    def _on_gpu(self, device, func, args, kwargs):
        self.ledger.device, before = device, self.ledger.nbytes
        draws, waits = about.get(id(func)) or look_at(func)
        within = self.gpus.fake or (self._randomness(device, kwargs) if draws else None)
        try:
            if within is None:
                result = self.compute(func, args, kwargs)
            else:
                with within:
                    result = self.compute(func, args, kwargs)
        except RuntimeError as error:
            if instead := out_of_host_memory(self.gpus, error):
                raise instead from None
            raise
        if self.ledger.nbytes > self.gpus.limit:
            nbytes = self.ledger.nbytes - before
            del result
            raise out_of_memory(self.gpus, nbytes)
        if waits and waits(args):
            host_waits()
        return result

    def _randomness(self, device, kwargs):
        """The GPU's random numbers, for an operator that is given no generator of its own."""
        given = kwargs and kwargs.get("generator") is not None
        return None if given else self.gpus.generator(device).drawn_by_the_host()

    def _pinned(self, func, types, args, kwargs):
        made = self.__torch_dispatch__(func, types, args, kwargs | {"pin_memory": False})
        self.gpus.pinned[made] = True
        return made

    def _copy(self, func, args, kwargs, device):
        """On one device an operator as any; between two, a copy over PCIe, for which the GPU waits, and the CPU too."""
        source = self.placement.device_of(args[0]) if isinstance(args[0], torch.Tensor) else device  # or a number
        if func is INTO:
            source, device = self.placement.device_of(args[1]), source
        if source == device:
            return func(*args, **kwargs) if device == HOST else self._on_gpu(device, func, args, kwargs)
        with self.gpus.fake or nullcontext():
            result = func(*args, **kwargs)
        nbytes = sum(part.nbytes for part in plain_tensors(result))
        self.stall("to host" if device == HOST else "to device", nbytes, p2p_time(nbytes, PCIE_4))
        if not (args[2] if len(args) > 2 else kwargs.get("non_blocking")):
            host_waits()
        if device != HOST:
            self.ledger.device = device
            for part in plain_tensors(result):
                self.ledger.see(part, self.scopes.now())
            if self.ledger.nbytes > self.gpus.limit:
                del result, part
                raise out_of_memory(self.gpus, nbytes)
        return result


def look_at(func):
    """Does it draw random numbers? And what says of its arguments whether the CPU waits for its result?"""
    waits = None
    if func._schema.name.removeprefix("aten::") in BY_MASK:
        waits = by_mask
    elif READS.intersection(func.tags):
        waits = always
    known = about[id(func)] = RANDOM in func.tags, waits
    return known


def always(args):
    return True


def by_mask(args):
    return any(index is not None and index.dtype in (torch.bool, torch.uint8) for index in args[1])


dtensors_draw_under(GPUObserver)
