"""Links between devices and between nodes: latency (alpha) and bandwidth (beta).

Bandwidth is **per direction**. NVIDIA advertises the sum of both: NVLink 3 is sold as 600 GB/s, and a message
gets 300 GB/s at most (``link.bidirectional`` has the larger one).

How a link joins the devices of a node is its ``shape``:

    switch    each device has one port of this bandwidth, and reaches any other through it
    mesh      the bandwidth of a device is split over wires, one to each of the others
    bus       one medium that all share
"""

from dataclasses import dataclass, replace

from ..rules import amount, count, one_of, positive, rate, validate
from .fabrics import NETWORKS, NODE_FABRICS
from .lookup import look_up

FABRICS = NODE_FABRICS | NETWORKS
SHAPES = ("switch", "mesh", "bus")


@validate(name=str, rated=rate)
@dataclass(frozen=True)
class Link:
    name: str
    latency: float  # seconds: alpha, of a message of no bytes
    bandwidth: float  # bytes/s per direction: beta
    shape: str = "switch"
    fabric: str | None = None  # what NCCL makes of it (fabrics.py); None: NCCL's algorithms are not known there
    rated: float | None = None  # bytes/s of the data sheet, where ``bandwidth`` is a fraction of it

    def __post_init__(self):
        if not amount(self.latency):
            raise ValueError(f"link {self.name!r}: latency must be 0 s or more, got {self.latency}")
        if not rate(self.bandwidth):
            raise ValueError(f"link {self.name!r}: bandwidth must be > 0 bytes/s, got {self.bandwidth}")
        if not one_of(SHAPES)(self.shape):
            raise ValueError(f"link {self.name!r}: shape must be one of {', '.join(SHAPES)}, got {self.shape!r}")
        if not (self.fabric is None or one_of(tuple(FABRICS))(self.fabric)):
            raise ValueError(f"link {self.name!r}: fabric must be one of {', '.join(FABRICS)}, got {self.fabric!r}")

    def __str__(self):
        return self.name

    @property
    def data_sheet(self) -> float:
        return self.bandwidth if self.rated is None else self.rated

    @property
    def reached(self) -> float:
        """Bytes/s that NCCL's collectives get: what was measured on such links, and not more than ``bandwidth``."""
        part = (FABRICS[self.fabric].reached if self.fabric else 1.0) * self.data_sheet
        return min(self.bandwidth, part)

    @property
    def bidirectional(self) -> float:
        """Bytes/s of both directions together, as advertised."""
        return 2 * self.bandwidth

    @validate(efficiency=positive)
    def at(self, efficiency) -> "Link":
        """This link at a fraction of its bandwidth: ``PCIE_5.at(0.88)``."""
        if efficiency == 1:
            return self
        name = f"{self.name} at {efficiency:.0%}"
        return replace(self, name=name, bandwidth=self.bandwidth * efficiency, rated=self.data_sheet)

    @validate(senders=count)
    def shared_by(self, senders) -> "Link":
        """What each of ``senders`` gets while all of them send."""
        if senders == 1:
            return self
        rated = self.rated and self.rated / senders
        return replace(self, name=f"1/{senders} of {self.name}", bandwidth=self.bandwidth / senders, rated=rated)


# Latencies: what NCCL's own model counts for a step of a ring (protocol Simple), NVIDIA/nccl@5067397c,
# src/graph/tuning.cc, hwLatencies (read).
NVLINK_LATENCY, PCIE_LATENCY, NETWORK_LATENCY = 3.4e-6, 5.7e-6, 14e-6  # seconds

# 16 lanes of 8, 16, 32 Gbit/s, of which 128 in 130 bits are payload (PCI-SIG): 15.8, 31.5, 63.0 GB/s. Measured on
# PCIe 5: 55 GB/s, 88 % (ml-engineering@744d01e1 network/README.md, read).
PCIE_3, PCIE_4, PCIE_5 = (
    Link(f"PCIe {generation}", PCIE_LATENCY, 16 * gigabits * 1e9 * 128 / 130 / 8)
    for generation, gigabits in [(3, 8), (4, 16), (5, 32)]
)

# All NVLinks of one device: 6 or 12 links of 25 GB/s, 18 of 25, 18 of 50 (ml-engineering@744d01e1
# network/README.md, read). NCCL counts on 120, 240, 371, 722 GB/s of them (src/graph/topo.h, read), and
# all-reduces were measured at 78 to 82 % of the wire.
NVLINK_2, NVLINK_3, NVLINK_4, NVLINK_5 = (
    Link(f"NVLink {generation}", NVLINK_LATENCY, links * each * 1e9, "mesh")
    for generation, links, each in [(2, 6, 25), (3, 12, 25), (4, 18, 25), (5, 18, 50)]
)

# With NVSwitch a device reaches any other through all its NVLinks.
NVSWITCH_V100, NVSWITCH_A100, NVSWITCH_H100, NVSWITCH_B200 = (
    replace(nvlink, name=f"NVSwitch ({device})", shape="switch", fabric=nvlink.name if device != "V100" else None)
    for nvlink, device in [(NVLINK_2, "V100"), (NVLINK_3, "A100"), (NVLINK_4, "H100"), (NVLINK_5, "B200")]
)

# A port of 4 lanes at 50 or 100 Gbit/s (ml-engineering@744d01e1 network/README.md, read).
INFINIBAND_HDR = Link("InfiniBand HDR", NETWORK_LATENCY, 200e9 / 8, fabric="InfiniBand")
INFINIBAND_NDR = Link("InfiniBand NDR", NETWORK_LATENCY, 400e9 / 8, fabric="InfiniBand")

# RDMA, as InfiniBand has it, over Ethernet of 400 Gbit/s: NCCL's model has one latency for both. Llama 3's largest was
# trained over it (Llama Team, The Llama 3 Herd of Models, 2024, section 3.3.1, recalled).
ROCE_400 = Link("RoCE 400", NETWORK_LATENCY, 400e9 / 8, fabric="RoCE")

# AWS's network, of a p6-b200.48xlarge: 8 cards of 400 Gbit/s (ml-engineering@744d01e1, read).
EFA_4 = Link("EFA v4", NETWORK_LATENCY + NETWORKS["EFA"].latency, 400e9 / 8, fabric="EFA")

# A message through the operating system's TCP, from kernel to kernel: about 50 us (secondary: wwt.com, The Basics
# of High-Performance Networking).
ETHERNET_10 = Link("Ethernet 10", 50e-6, 10e9 / 8)
ETHERNET_100 = Link("Ethernet 100", 50e-6, 100e9 / 8)

# Processes of one laptop: each byte is written and read once, over 51.2 GB/s of memory. The latency is assumed.
SHARED_MEMORY = Link("shared memory", 5e-6, 51.2e9 / 2, "bus")

LINKS = {
    each.name: each
    for each in (
        PCIE_3, PCIE_4, PCIE_5,
        NVLINK_2, NVLINK_3, NVLINK_4, NVLINK_5,
        NVSWITCH_V100, NVSWITCH_A100, NVSWITCH_H100, NVSWITCH_B200,
        INFINIBAND_HDR, INFINIBAND_NDR, ROCE_400, EFA_4, ETHERNET_10, ETHERNET_100, SHARED_MEMORY,
    )
}  # fmt: skip


def find_link(name) -> Link:
    """``'NVLink 4'`` and so on; a Link is returned as it is."""
    return look_up("link", LINKS, name)
