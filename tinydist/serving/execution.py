"""How the kernels of a forward pass are started: eager, compiled, or from a CUDA graph.

    eager              55 kernels a layer, one for each operator     the CPU starts each
    compiled           14: torch.compile makes one of several        the CPU starts each
    CUDA graph         14, recorded once                             the GPU starts each after the one before

A kernel takes a fixed time on the GPU besides its bytes: to start, and, if it reads weights, until memory delivers at
full rate and again at its end. Five kernels of a layer read weights: those of the queries, keys and values, of the
output, and the three of the MLP. The CPU runs ahead of the GPU, so a pass takes the longer of the two:

    seconds = max(bytes and FLOPs + starts on the GPU, kernels x the CPU's time for each)

Sources. On the GPU: 10,000 kernels in a CUDA graph, A[i] = c B[i], from 64 kB to 1 GB (te42kyfo/gpu-benches@11f5daa3
gpu-small-kernels/a100_80_graph.txt, h200_graph.txt, read): the smallest takes 1.34 and 2.18 us, and the line through
those of 98 MB or more has 3.3 and 3.2 us at no bytes. On the CPU: an addition of 512 x 512 numbers, queued without
waiting, 8 us on an A100's host (flagos-ai/Torch-FL pull request 27, read); a kernel of Inductor's, 6.8 us on a GB200's
(meta-pytorch/tritonbench pull request 1017, read). Kernels: counted, of attention.Decoder in eager mode, and by
Inductor 2.13 for a layer of Llama with fused attention (for CPUs; for GPUs it may make fewer).

Eager is the choice that is known least: programs also run Python between operators. gpt-fast reports 25.5 tokens/s for
its first version, where this says 71.
"""

from dataclasses import dataclass

from ..hardware import Device
from ..rules import count, flag, positive, validate

READ_WEIGHTS = 5  # kernels of a layer


@validate(name=str, kernels=count, cpu=positive, graph=flag)
@dataclass(frozen=True)
class Execution:
    name: str
    kernels: int  # of a layer
    cpu: float  # seconds that the CPU takes to start one
    graph: bool = False

    def gpu_seconds(self, layers, device):
        """That the kernels of so many layers take besides their bytes and FLOPs."""
        small, reading = starts_on(device)
        return layers * (READ_WEIGHTS * reading + (self.kernels - READ_WEIGHTS) * small)

    def cpu_seconds(self, layers):
        return 0.0 if self.graph else layers * self.kernels * self.cpu


EXECUTIONS = {
    each.name: each
    for each in (
        Execution("eager", 55, 8e-6),
        Execution("compiled", 14, 6.8e-6),
        Execution("CUDA graph", 14, 6.8e-6, graph=True),
    )
}

# Seconds of a kernel in a CUDA graph besides its bytes: of a small one, and of one that reads from memory.
STARTS = {"A100": (1.34e-6, 3.3e-6), "H200": (2.18e-6, 3.2e-6)}


@validate(device=Device)
def starts_on(device):
    """What was measured on an A100 for GPUs up to it, on an H200 for later ones; 0 where the CPU computes."""
    if not device.runs_ahead:
        return 0.0, 0.0
    return STARTS["A100" if device.name.startswith(("V100", "A100")) else "H200"]
