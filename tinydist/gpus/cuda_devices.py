"""torch.cuda's functions about devices, and its random numbers. Each is called as torch's of its name."""

import torch

from .random_numbers import PhiloxState
from .rank_gpus import mine, of_thread

# NVIDIA, CUDA GPU compute capability (developer.nvidia.com/cuda-gpus)
CAPABILITY = {"V100": (7, 0), "A100": (8, 0), "H100": (9, 0), "H800": (9, 0), "H200": (9, 0)}
CAPABILITY |= {"B200": (10, 0), "GB200": (10, 0)}
MULTIPROCESSORS = {"V100": 80, "A100": 108, "H100": 132, "H800": 132, "H200": 132, "B200": 148, "GB200": 148}
CUDA_VERSION = "13.0"  # that torch says it was built for


def generation():
    """ "A100" of "A100 40GB"."""
    return str(mine().cluster.device).split()[0]


def is_available():
    """Not in a thread that is no rank."""
    return of_thread.gpus is not None and device_count() > 0


def is_initialized():
    """Lazily, as CUDA: since a device was chosen, or memory allocated. (DeviceMesh chooses one where it is not.)"""
    return mine().is_set or mine().ledger.device is not None


def init():
    """There is nothing to start."""


def device_count():
    return len(mine().visible)


def current_device():
    return mine().current.index


def set_device(device):
    gpus = mine()
    index = gpus.device(device).index
    if index is not None:
        gpus.index, gpus.is_set = index, True


class device:
    """``with torch.cuda.device(1):``"""

    def __init__(self, device):
        self.idx = None if device is None else mine().device(device).index

    def __enter__(self):
        self.before = mine().index
        set_device(self.before if self.idx is None else self.idx)

    def __exit__(self, *error):
        set_device(self.before)


class device_of(device):
    def __init__(self, tensor):
        where = mine().placement.device_of(tensor)
        super().__init__(where if where.type == "cuda" else None)


class Properties:
    """What a cluster knows of its devices, under torch's names."""

    def __init__(self, gpu, name):
        self.name, self.total_memory = f"NVIDIA {gpu}", int(gpu.memory)
        self.major, self.minor = CAPABILITY.get(name, (8, 0))
        self.multi_processor_count = MULTIPROCESSORS.get(name, 108)
        self.warp_size, self.is_integrated, self.is_multi_gpu_board = 32, 0, 0
        self.gcnArchName = f"sm_{self.major}{self.minor}"

    def __repr__(self):
        return (
            f"_CudaDeviceProperties(name={self.name!r}, major={self.major}, minor={self.minor}, "
            f"total_memory={self.total_memory // 2**20}MB, multi_processor_count={self.multi_processor_count})"
        )


def get_device_properties(device=None):
    mine().device(device)
    return Properties(mine().cluster.device, generation())


def get_device_name(device=None):
    return get_device_properties(device).name


def get_device_capability(device=None):
    properties = get_device_properties(device)
    return properties.major, properties.minor


def get_arch_list():
    return [f"sm_{major}{minor}" for major, minor in sorted(set(CAPABILITY.values()))]


def is_bf16_supported(including_emulation=True):
    return including_emulation or get_device_capability() >= (8, 0)


def is_tf32_supported():
    return get_device_capability() >= (8, 0)


def can_device_access_peer(device, peer_device):
    return mine().device(device) != mine().device(peer_device)


def ipc_collect():
    """No other process has its memory."""


def get_sync_debug_mode():
    return 0


def set_sync_debug_mode(mode):
    mine().note("torch.cuda.set_sync_debug_mode", "nothing is reported")


# Random numbers.


def manual_seed(seed, device=None):
    gpus = mine()
    gpus.generators[gpus.device(device)] = PhiloxState(int(seed))


def manual_seed_all(seed):
    for index in range(device_count()):
        manual_seed(seed, index)


def seed():
    manual_seed(torch.default_generator.seed())


def seed_all():
    manual_seed_all(torch.default_generator.seed())


def initial_seed():
    return mine().generator(mine().current).seed


def get_rng_state(device="cuda"):
    return mine().generator(mine().device(device)).state


def get_rng_state_all():
    return [get_rng_state(index) for index in range(device_count())]


def set_rng_state(new_state, device="cuda"):
    mine().generator(mine().device(device)).state = new_state


def set_rng_state_all(new_states):
    for index, state in enumerate(new_states):
        set_rng_state(state, index)


def _is_in_bad_fork():
    return False


def _is_compiled():
    return True


def _lazy_init():
    """There is nothing to start."""


def _lazy_call(function, **how):
    function()


def _exchange_device(index):
    before = mine().index
    if index >= 0:
        set_device(index)
    return before


_maybe_exchange_device = _exchange_device


def _get_device_index(device, optional=False, allow_cpu=False):
    if device is None and not optional:
        raise ValueError("Expected a torch.device with a specified index or an integer, but got: None")
    where = mine().device(device)
    if where.type == "cpu" and not allow_cpu:
        raise ValueError(f"Expected a cuda device, but got: {where}")
    return -1 if where.type == "cpu" else where.index


class NCCLModule:
    """The part of torch.cuda.nccl that programs ask."""

    @staticmethod
    def version():
        return 2, 27, 7

    @staticmethod
    def is_available(tensors):
        return all(mine().placement.device_of(tensor).type == "cuda" for tensor in tensors)


has_half = True
