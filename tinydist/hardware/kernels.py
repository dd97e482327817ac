"""Kernels that memory holds up: the bandwidth that they get, and what a kernel takes that does nothing.

    seconds = START + bytes read and written / (MEMORY[device] x the data sheet's bandwidth)

Between two kernels in a stream a GPU pauses, and a kernel fills and drains its multiprocessors. Launched by the CPU in
C++, one after the other, the shortest kernels follow one another every 2.5 us; in a CUDA graph every 1.4 us.
"""

from ..rules import amount, one_of, validate
from .devices import find_device

# gpu-benches@1c36d509, gpu-small-kernels (read): kernels of 64 kB, A100 80GB and H200: 65536 bytes at 48 to 50 GB/s in
# a graph, at 25 to 26 in a stream.
START = 1.4e-6  # seconds
LAUNCHED = 2.5e-6  # seconds, without a graph

# Part of the data sheet's bandwidth, of large tensors in bfloat16:
#   A100   gpu-benches@1c36d509, gpu-stream/a100_80.txt, scale: 1732 of 2000 GB/s (read); an addition in vidur@7d47513,
#          profiling/compute/a100, Llama-2-70b: 201 MB in 112 us, 0.90 (read)
#   H100   vidur@7d47513, the same addition: 62 us, 0.97, of which its cache of 50 MB has a part (read); a copy in one
#          device: 3124 of 3350 GB/s, 0.93 (secondary)
#   H200   RMS norm forward by cuDNN, 268 MB: 3708 of 4800 GB/s (cudnn-frontend@3929da2, benchmark/norms/results, read)
#   GB200  the same: 6425 of 8000 GB/s (read). B200: the same memory
MEMORY = {"A100": 0.87, "H100": 0.93, "H200": 0.78, "B200": 0.80, "GB200": 0.80}
# Fused kernels with a reduction or a nonlinearity get less, in the same tables, as parts of MEMORY: torch's RMS norm
# 0.83 to 0.91 forward and 0.35 to 0.49 backward; vLLM's SwiGLU of 2023 0.6; vLLM's RMS norm of 2023 0.4.
NORM = {"forward": 0.87, "backward": 0.42}


@validate(device=one_of(tuple(MEMORY)), nbytes=amount)
def memory_time(device, nbytes) -> float:
    """Seconds of a copy, or another operator on each number by itself. ``device``: a name in MEMORY."""
    name = "A100 80GB" if device == "A100" else device
    return START + nbytes / (MEMORY[device] * find_device(name).memory_bandwidth)
