"""Hardware specifications and an analytical cost model. Plain numbers in SI units, no torch.

    devices.py          accelerators: peak FLOP/s by dtype, memory, and the time to start an operator
    tiles.py            tile and wave quantization: why matmuls of some shapes are slower
    products.py         matmuls as measured: tiles, memory, and the power limit
    attention_kernels.py    attention kernels as measured, by length and head dimension
    kernels.py          kernels that memory holds up, and what an empty one takes
    links.py            PCIe, NVLink, NVSwitch, InfiniBand, Ethernet: latency and bandwidth
    cluster.py          nodes x devices: the link between two ranks, and the resources that a message occupies; presets
    algorithms.py       time of a collective, by the algorithm that NCCL would choose for its size
    lines.py            each of the algorithms as latency + n/bandwidth
    fabrics.py          what NCCL reaches on each kind of link, measured
    messages.py         a collective as messages of a ring or a tree
    costs.py            time of an operator, a message, and each collective algorithm
    bus_bandwidth.py    bus bandwidth as in nccl-tests, and links fitted to it
    nccl.py             NCCL's protocols, and its choice of algorithm by message size
    published.py        published measurements: training runs, a layer, all-reduces
    published_speed_ups.py published steps in 8 and in 4 bits, beside 16
    lookup.py           look presets up by name

Peak FLOP/s (dense) and bandwidths (per direction) are from data sheets. Real programs reach about 80 % of either:
``link.at(0.8)``, ``device.best_matmul``, ``cluster.at(matmul=0.8, wire=0.8)``; and lower FLOP/s while communication
overlaps, ``cluster.at(contention=0.16)``, or for unfavorable matmul shapes, ``tiles=TILES["A100"]``.
"""

from . import costs, nccl, published, published_speed_ups
from .algorithms import ALGORITHMS, collective_time
from .attention_kernels import attention_time, fused_softmax_available, torch_kernel
from .bus_bandwidth import algorithm_bandwidth, bus_bandwidth, bus_factor, fitted_link
from .cluster import CLUSTERS, Cluster, Resource, default_cluster, find_cluster
from .devices import DEVICES, Device, find_device
from .kernels import memory_time
from .links import LINKS, Link, find_link
from .products import RATES, ProductRates, product_time
from .tiles import TILES, Tiles

__all__ = [
    "ALGORITHMS",
    "CLUSTERS",
    "DEVICES",
    "LINKS",
    "RATES",
    "TILES",
    "Cluster",
    "Device",
    "Link",
    "ProductRates",
    "Resource",
    "Tiles",
    "algorithm_bandwidth",
    "attention_time",
    "bus_bandwidth",
    "bus_factor",
    "collective_time",
    "costs",
    "default_cluster",
    "find_cluster",
    "find_device",
    "find_link",
    "fitted_link",
    "fused_softmax_available",
    "memory_time",
    "nccl",
    "product_time",
    "published",
    "published_speed_ups",
    "torch_kernel",
]
