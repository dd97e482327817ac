"""What a cluster is made of, and what work on it costs. Arithmetic: plain numbers in SI units, no torch.

    devices.py          accelerators: peak FLOP/s by dtype, memory, and the time to start an operator
    tiles.py            products by tiles and waves: why those of some shapes are slower
    links.py            PCIe, NVLink, NVSwitch, InfiniBand, Ethernet: latency and bandwidth
    cluster.py          nodes x devices: which link joins two ranks, what a message holds on its way
    presets.py          clusters to start from
    costs.py            seconds for an operator, a message, and each collective by its algorithm
    bus_bandwidth.py    the yardstick of NCCL's benchmarks, and links that are fitted to them
    nccl.py             its protocols, and which algorithm it takes for which size
    published.py        training runs, a layer, all-reduces, as others measured them
    catalogue.py        finding a thing by its name

Peaks and bandwidths are those of data sheets, of dense numbers and per direction. Real programs get about 80 %
of either: ``link.at(0.8)``, ``device.best_matmul``, ``cluster.at(matmul=0.8, wire=0.8)``; and less of the first while
they communicate, ``cluster.at(contention=0.16)``, or where a product's shape does not suit, ``tiles=TILES["A100"]``.
"""

from . import costs, nccl, published
from .bus_bandwidth import algorithm_bandwidth, bus_bandwidth, bus_factor, fitted_link
from .cluster import Cluster, Resource
from .devices import DEVICES, Device, find_device
from .links import LINKS, Link, find_link
from .presets import CLUSTERS, default_cluster, find_cluster
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
