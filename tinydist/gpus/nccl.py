"""The rules of NCCL: tensors on GPUs only, a GPU for each rank, and the reductions that it has."""

import torch

UNSUPPORTED = {"BAND", "BOR", "BXOR"}
CPU, CUDA = torch.device("cpu"), torch.device("cuda")


def devices_of(backend):
    """The devices whose tensors a group takes: of "nccl", "gloo", "cpu:gloo,cuda:nccl"."""
    if backend == "nccl":
        return [CUDA]
    named = [part.partition(":")[0] for part in backend.split(",") if ":" in part]
    return [torch.device(name) for name in named] or [CPU, CUDA]


class NCCL:
    """Of a launch: ``users``: (node, number of the GPU on it) -> the rank that communicates from it."""

    def __init__(self):
        self.users = {}

    def check(self, gpus, backend, name, tensors, reduction=None):
        """Raise what NCCL or torch would, for tensors of a rank's call on a group of that backend."""
        devices = [gpus.placement.device_of(tensor) for tensor in tensors] or [gpus.current]
        supported = devices_of(backend)
        for device in devices:
            if torch.device(device.type) not in supported:
                raise RuntimeError(
                    f"No backend type associated with device type {device.type}\n{name} on rank {gpus.rank}: the "
                    f"group's backend, {backend}, takes tensors on {' and '.join(each.type for each in supported)}; "
                    'move them, or call init_process_group("cpu:gloo,cuda:nccl")'
                )
            if device.type == "cuda" and "nccl" in backend:
                self._alone_on(gpus, device, name)
        if reduction in UNSUPPORTED and "nccl" in backend:
            raise RuntimeError(f"Cannot use ReduceOp.{reduction} with NCCL")

    def _alone_on(self, gpus, device, name):
        place = gpus.node, gpus.visible[device.index]
        other = self.users.setdefault(place, gpus.rank)
        if other != gpus.rank:
            raise torch.distributed.DistBackendError(
                f"NCCL error: invalid usage\nDuplicate GPU detected : rank {gpus.rank} and rank {other} both on CUDA "
                f"device {place[1]}\n{name}: each rank needs a GPU of its own; call torch.cuda.set_device(LOCAL_RANK) "
                "first"
            )
