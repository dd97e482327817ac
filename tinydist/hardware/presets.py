"""Clusters to start from. ``H100_NODE.pod(16)`` is sixteen of such nodes."""

import math

from ..rules import count, takes
from .catalogue import look_up
from .cluster import Cluster
from .devices import A100_80GB, B200, CORES, GB200, H100, LAPTOP_CPU
from .links import (
    ETHERNET_100,
    INFINIBAND_HDR,
    INFINIBAND_NDR,
    NVSWITCH_A100,
    NVSWITCH_B200,
    NVSWITCH_H100,
    PCIE_4,
    ROCE_400,
    SHARED_MEMORY,
)

# Cards: a DGX A100 has 8 of 200 Gbit/s (data sheet, recalled), a DGX H100 and a DGX B200 8 of 400 Gbit/s (NVIDIA, DGX
# BasePOD reference architecture, read).
A100_NODE = Cluster(A100_80GB, 8, NVSWITCH_A100, between=INFINIBAND_HDR)
H100_NODE = Cluster(H100, 8, NVSWITCH_H100, between=INFINIBAND_NDR)
H100_ROCE_NODE = Cluster(H100, 8, NVSWITCH_H100, between=ROCE_400)
B200_NODE = Cluster(B200, 8, NVSWITCH_B200, between=INFINIBAND_NDR)
H100_POD = H100_NODE.pod(4)
B200_POD = B200_NODE.pod(4)
# A rack: NVLink joins all 72 GPUs of its 18 trays, each with 1.8 TB/s of both directions (NVIDIA on the GB200 NVL72,
# secondary). A node here is what NVLink joins, so the rack is one. A card of 400 Gbit/s for each GPU.
NVL72 = Cluster(GB200, 72, NVSWITCH_B200, between=INFINIBAND_NDR)
TWO_BY_FOUR = Cluster(A100_80GB, 4, NVSWITCH_A100, nodes=2, between=INFINIBAND_HDR)
PCIE_BOX = Cluster(A100_80GB, 4, PCIE_4, between=ETHERNET_100, cards_per_node=1)
LAPTOP = Cluster(LAPTOP_CPU.shared_by(CORES), CORES, SHARED_MEMORY)

CLUSTERS = {
    "laptop": LAPTOP,
    "PCIe box": PCIE_BOX,
    "2 x 4": TWO_BY_FOUR,
    "A100 node": A100_NODE,
    "H100 node": H100_NODE,
    "H100 pod": H100_POD,
    "H100 RoCE node": H100_ROCE_NODE,
    "B200 node": B200_NODE,
    "B200 pod": B200_POD,
    "GB200 NVL72": NVL72,
}


def find_cluster(name) -> Cluster:
    """``'H100 pod'`` and so on; a Cluster is returned as it is."""
    return look_up("cluster", CLUSTERS, name)


@takes(ranks=count)
def default_cluster(ranks=8) -> Cluster:
    """Nodes of 8 A100s, as many as the ranks need."""
    return A100_NODE.pod(max(1, math.ceil(ranks / A100_NODE.devices_per_node)))
