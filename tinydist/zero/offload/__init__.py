"""ZeRO-Offload and ZeRO-Infinity: model states on an offload device, and the optimizer step there.

stages.py            stages 2 and 3 that offload to
cpu.py                   host memory,
nvme.py                  or files
"""

from .cpu import CPUOffload, OffloadError
from .nvme import NVMeOffload
from .stages import ZeROInfinity, ZeROOffload

__all__ = ["CPUOffload", "NVMeOffload", "OffloadError", "ZeROInfinity", "ZeROOffload"]
