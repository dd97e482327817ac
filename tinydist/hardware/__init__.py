"""Hardware specifications and an analytical cost model. Plain numbers in SI units, no torch.

    devices.py          accelerators: peak FLOP/s by dtype, memory, and the time to start an operator
    tiles.py            tile and wave quantization: why matmuls of some shapes are slower
    links.py            PCIe, NVLink, NVSwitch, InfiniBand, Ethernet: latency and bandwidth
    cluster.py          nodes x devices: the link between two ranks, and the resources that a message occupies; presets
    costs.py            time of an operator, a message, and each collective algorithm
    bus_bandwidth.py    bus bandwidth as in nccl-tests, and links fitted to it
    nccl.py             NCCL's protocols, and its choice of algorithm by message size
    published.py        published measurements: training runs, a layer, all-reduces
    lookup.py           look presets up by name

Peak FLOP/s (dense) and bandwidths (per direction) are from data sheets. Real programs reach about 80 % of either:
``link.at(0.8)``, ``device.best_matmul``, ``cluster.at(matmul=0.8, wire=0.8)``; and lower FLOP/s while communication
overlaps, ``cluster.at(contention=0.16)``, or for unfavorable matmul shapes, ``tiles=TILES["A100"]``.
"""

from . import costs, nccl, published
from .bus_bandwidth import algorithm_bandwidth, bus_bandwidth, bus_factor, fitted_link
from .cluster import CLUSTERS, Cluster, Resource, default_cluster, find_cluster
from .devices import DEVICES, Device, find_device
from .links import LINKS, Link, find_link
from .tiles import TILES, Tiles

__all__ = [
    "CLUSTERS",
    "DEVICES",
    "LINKS",
    "TILES",
    "Cluster",
    "Device",
    "Link",
    "Resource",
    "Tiles",
    "algorithm_bandwidth",
    "bus_bandwidth",
    "bus_factor",
    "costs",
    "default_cluster",
    "find_cluster",
    "find_device",
    "find_link",
    "fitted_link",
    "nccl",
    "published",
]
