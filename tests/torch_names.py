"""The names that torch 2.13 gave to what tests use of it, for torch 2.12 too: ``funcol`` and ``FORWARD_SYNC``."""

import inspect

import torch.distributed._functional_collectives as funcol
from torch.nn.parallel import DistributedDataParallel

UNTIL_2_12 = {
    "all_gather_single": "all_gather_tensor",
    "all_gather_single_autograd": "all_gather_tensor_autograd",
    "all_gather_single_coalesced": "all_gather_into_tensor_coalesced",
    "reduce_scatter_single": "reduce_scatter_tensor",
    "reduce_scatter_single_coalesced": "reduce_scatter_tensor_coalesced",
}
for name, older in UNTIL_2_12.items():
    if not hasattr(funcol, name):
        setattr(funcol, name, getattr(funcol, older))

OPTIONS_OF_DDP = inspect.signature(DistributedDataParallel).parameters
FORWARD_SYNC = "forward_sync_buffers" if "forward_sync_buffers" in OPTIONS_OF_DDP else "broadcast_buffers"
