"""Fabrics: what NCCL's collectives reach on each kind of link, measured.

    inside a node     NVLink 3, 4, 5 with switches     bytes/s by protocol; whether the switches add (NVLink SHARP)
    between nodes     InfiniBand, RoCE, EFA            the part of a card's rate; latency on top of NCCL's own

A link names its fabric (``Link.fabric``). Without one, NCCL's algorithms are not known on it: then rings count.

Bandwidths are bus bandwidths, as nccl-tests defines them: the bytes that a rank must send, by seconds. All constants
are of one kind: the line t = latency + n/bandwidth through those rows of a table that went by one algorithm and
protocol, which a log of the run names, or a step in the curve. Latencies of steps are NCCL's (nccl.py), unless said.

Sources: ml-engineering@0cc3de50 network/README.md (H200, B200, four nodes of B200, by algorithm; NVLS off; symmetric
memory) and @744d01e1 (A100), both read. The tables: published_collectives.py.
"""

from dataclasses import dataclass

US, GB = 1e-6, 1e9


@dataclass(frozen=True)
class NodeFabric:
    """NVLink with switches, of one generation of GPUs."""

    generation: str  # of nccl.TREE
    reached: float  # part of the data sheet, by a ring with protocol Simple
    ll: float  # bytes/s
    ll128: float
    step: float = 0.6 * US  # from one GPU to the next, by LL
    nvls: float | None = None  # bytes/s of the tensor, where the switches add; None: they cannot
    nvls_latency: float = 0.0
    symmetric_latency: float = 0.0  # of one kernel on symmetric memory, where the switches add


@dataclass(frozen=True)
class Network:
    reached: float  # part of a card's rate
    latency: float = 0.0  # of a hop, on top of NCCL's own, which is InfiniBand's


# A100: 234.9 of 300 GB/s at 16 GiB. LL takes 37 us longer for 512 KiB than for 32 KiB; by NCCL's own limit, 87.7 GB/s,
# it would be 10. Of two other tables of A100s these rows were not seen (nccl#583, nccl-tests#149). LL128: 1 to
# 8 MiB. Rows up to 2 MiB took 24 to 48 us longer than these constants and NCCL's latencies say: nobody explained it.
# H100, H200: 367.2 of 450 GB/s at 16 GiB with NVLS off. LL is what ran up to 1 MiB, NVLS from 2 MiB. LL128: 92 % of the
# ring, as NCCL has it.
# B200: 682.2 of 900 GB/s at 8 GiB with NVLS off. Steps of LL take twice as long as NCCL says (8 bytes in 23.5 us, 15.2
# on H200); its limit is NCCL's, 2 x 141 GB/s. From 4 to 64 MiB one line, of 42 us, which is LL128's; then NVLS.
# Symmetric memory: 32 KiB in 7.8 us on H200, in 10.8 on B200.
NODE_FABRICS = {
    "NVLink 3": NodeFabric("Ampere", 235 / 300, 24 * GB, 175 * GB),
    "NVLink 4": NodeFabric("Hopper", 367 / 450, 225 * GB, 338 * GB, 0.6 * US, 275 * GB, 40 * US, 8 * US),
    "NVLink 5": NodeFabric("Blackwell", 682 / 900, 282 * GB, 490 * GB, 1.25 * US, 450 * GB, 80 * US, 12.5 * US),
}

# InfiniBand: 46 to 48 of 50 GB/s (NVIDIA/nccl-tests#290, comment of March 2025, read), 24 of 25 (NVIDIA/nccl#1048,
# read), and so RoCE. EFA: 47.07 of 50 GB/s (four nodes of B200, 16 GiB); a hop takes 18 to 20 us
# (aws-ofi-nccl@39397b33, src/tuner/nccl_ofi_model.cpp, read), of which NCCL's model counts 5 (tree, LL).
NETWORKS = {"InfiniBand": Network(0.96), "RoCE": Network(0.96), "EFA": Network(47.07 / 50, 13 * US)}
