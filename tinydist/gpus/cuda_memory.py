"""torch.cuda's functions about memory, answered from the rank's ledger. Each is called as torch's of its name.

The ledger counts the bytes of tensors. A GPU's caching allocator reserves more: it rounds blocks up, and keeps them
when tensors are freed. So reserved memory is at least the peak of allocated memory, which is the number given for it.
"""

import re
from collections import defaultdict

import torch

from .rank_gpus import mine


def memory_allocated(device=None):
    return mine().ledger.nbytes


def max_memory_allocated(device=None):
    return mine().ledger.peak


max_memory_reserved = max_memory_cached = max_memory_allocated


def memory_reserved(device=None):
    return mine().ledger.peak


memory_cached = memory_reserved


def mem_get_info(device=None):
    total = int(mine().cluster.device.memory)
    return total - memory_reserved(device), total


get_memory_info = mem_get_info  # under torch.accelerator


def device_memory_used(device=None):
    return memory_reserved(device)


def reset_peak_memory_stats(device=None):
    mine().ledger.peak = mine().ledger.nbytes


reset_max_memory_allocated = reset_max_memory_cached = reset_peak_memory_stats


def reset_accumulated_memory_stats(device=None):
    """None are accumulated."""


def empty_cache():
    """Nothing is cached."""


def empty_host_cache():
    """Nothing is cached."""


def set_per_process_memory_fraction(fraction, device=None):
    mine().limit = int(mine().cluster.device.memory * fraction)


def get_per_process_memory_fraction(device=None):
    return mine().limit / mine().cluster.device.memory


def memory_stats(device=None):
    """What is not listed counts 0, as what the ledger does not know."""
    stats = defaultdict(int)
    now = {"allocated": memory_allocated(), "active": memory_allocated(), "reserved": memory_reserved()}
    for what, nbytes in now.items():
        stats[f"{what}_bytes.all.current"], stats[f"{what}_bytes.all.peak"] = nbytes, max_memory_allocated()
    stats["requested_bytes.all.current"] = memory_allocated()
    stats["allocation.all.current"] = len(mine().ledger.alive)
    return stats


def memory_summary(device=None, abbreviated=False):
    held = {purpose: nbytes for purpose, nbytes in mine().ledger.held.items() if nbytes}
    lines = [f"{purpose:20} {nbytes / 2**20:12,.1f} MiB" for purpose, nbytes in held.items()]
    lines += [f"{'allocated':20} {memory_allocated() / 2**20:12,.1f} MiB"]
    lines += [f"{'peak':20} {max_memory_allocated() / 2**20:12,.1f} MiB"]
    return "\n".join(lines)


def out_of_memory(gpus, nbytes):
    """As torch says it, and with what fills the memory."""
    ledger, total = gpus.ledger, gpus.cluster.device.memory
    held = sorted(ledger.held.items(), key=lambda each: -each[1])
    of = ", ".join(f"{gib(size)} {purpose}" for purpose, size in held if size)
    return torch.OutOfMemoryError(
        f"CUDA out of memory. Tried to allocate {gib(nbytes)}. GPU {gpus.index} has a total capacity of {gib(total)} "
        f"of which {gib(max(0, gpus.limit - ledger.nbytes))} is free. "
        f"Rank {gpus.rank} holds {gib(ledger.nbytes)} without it: {of}"
    )


def out_of_host_memory(gpus, error):
    """What to raise where the host could not allocate what is on a GPU, if the GPU has no room for it either."""
    asked = re.search(r"DefaultCPUAllocator: .*tried to allocate (\d+) bytes", str(error))
    if asked and gpus.ledger.nbytes + int(asked[1]) > gpus.limit:
        return out_of_memory(gpus, int(asked[1]))
    if asked:
        error.add_note("pretended GPUs keep their numbers in this machine's memory; --fake (fake=True) keeps shapes")


def gib(nbytes):
    return f"{nbytes / 2**30:.2f} GiB" if nbytes >= 2**30 else f"{nbytes / 2**20:.2f} MiB"
