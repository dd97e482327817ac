"""Valid calls of ``tinydist.hardware``."""

from nonsense.calls import Call

from tinydist import hardware
from tinydist.hardware import Cluster, Device, Link, costs, find_cluster

LINK = Link("link", 1e-6, 1e9)
CLUSTER = find_cluster("2 x 4")
DEVICE = CLUSTER.device
TILES = hardware.TILES["A100"]


def collective(name):
    return Call(getattr(costs, name), lambda: dict(nbytes=1000, ranks=4, link=LINK))


CALLS = {
    "Cluster": Call(
        Cluster,
        lambda: dict(
            device="H100",
            devices_per_node=4,
            intra_node="PCIe 4",
            nodes=2,
            inter_node="Ethernet 100",
            cards_per_node=2,
            ring_through_one_card=True,
            contention=0.1,
            algorithm="ring",
        ),
    ),
    "Cluster.with_algorithm": Call(CLUSTER.with_algorithm, lambda: dict(algorithm="NCCL Tree")),
    "Cluster.check_ranks": Call(CLUSTER.check_ranks, lambda: dict(ranks=3)),
    "Cluster.node_of": Call(CLUSTER.node_of, lambda: dict(rank=3)),
    "Cluster.local_rank": Call(CLUSTER.local_rank, lambda: dict(rank=3)),
    "Cluster.card_of": Call(CLUSTER.card_of, lambda: dict(rank=3)),
    "Cluster.pod": Call(CLUSTER.pod, lambda: dict(nodes=3)),
    "Cluster.link": Call(CLUSTER.link, lambda: dict(source=0, destination=5)),
    "Cluster.resources": Call(CLUSTER.resources, lambda: dict(source=0, destination=5)),
    "Cluster.ring_link": Call(CLUSTER.ring_link, lambda: dict(ranks=[0, 1, 2])),
    "Device": Call(
        Device,
        lambda: dict(
            name="mine",
            peak={"float32": 1e12},
            memory=1e9,
            memory_bandwidth=1e9,
            launch_overhead=1e-6,
            runs_ahead=True,
            best_matmul={"float32": 1e11},
            source="",
            tiles=TILES,
        ),
    ),
    "Device.peak_of": Call(DEVICE.peak_of, lambda: dict(dtype="float32")),
    "Device.shared_by": Call(DEVICE.shared_by, lambda: dict(processes=2)),
    "Link": Call(Link, lambda: dict(name="mine", latency=1e-6, bandwidth=1e9, shape="bus", fabric="EFA", rated=2e9)),
    "Link.at": Call(LINK.at, lambda: dict(efficiency=0.8)),
    "Link.shared_by": Call(LINK.shared_by, lambda: dict(senders=2)),
    "collective_time": Call(
        hardware.collective_time,
        lambda: dict(what="all_reduce", nbytes=1000, ranks=8, per_node=4, cluster=CLUSTER, algorithm="NCCL Tree"),
    ),
    "algorithm_bandwidth": Call(hardware.algorithm_bandwidth, lambda: dict(nbytes=1000, seconds=1e-3)),
    "bus_bandwidth": Call(
        hardware.bus_bandwidth, lambda: dict(collective="all_reduce", nbytes=1000, seconds=1e-3, ranks=4)
    ),
    "bus_factor": Call(hardware.bus_factor, lambda: dict(collective="all_gather", ranks=4)),
    "default_cluster": Call(hardware.default_cluster, lambda: dict(ranks=9)),
    "find_cluster": Call(hardware.find_cluster, lambda: dict(name="laptop")),
    "find_device": Call(hardware.find_device, lambda: dict(name="H100")),
    "find_link": Call(hardware.find_link, lambda: dict(name="NVLink 4")),
    "fitted_link": Call(hardware.fitted_link, lambda: dict(latency=1e-5, bandwidth=1e9, ranks=4, name="fitted")),
    "costs.op_time": Call(costs.op_time, lambda: dict(device=DEVICE, flops=1e9, nbytes=1e6, dtype="float32")),
    "costs.kernel_time": Call(costs.kernel_time, lambda: dict(device=DEVICE, flops=1e9, nbytes=1e6, dtype="float32")),
    "Cluster.at": Call(CLUSTER.at, lambda: dict(matmul=0.8, memory=0.9, wire=0.7, contention=0.1, tiles=TILES)),
    "Device.at": Call(DEVICE.at, lambda: dict(matmul=0.8, memory=0.9, tiles=TILES)),
    "published.training_rates": Call(
        hardware.published.training_rates, lambda: dict(cluster=find_cluster("A100 node"))
    ),
    "Tiles": Call(hardware.Tiles, lambda: dict(best=(2048, 4096, 1024), processors=100)),
    "Tiles.rate_within": Call(TILES.rate_within, lambda: dict(measured=1e14, bandwidth=1e12)),
    "ProductRates": Call(
        hardware.ProductRates,
        lambda: dict(within=3e14, burst=2e14, sustained=1e14, bandwidth=1e12, processors=100, watts=400.0, fp8=1.5),
    ),
    "ProductRates.limited_to": Call(hardware.RATES["H100"].limited_to, lambda: dict(watts=500)),
    "product_time": Call(
        hardware.product_time,
        lambda: dict(
            device="H100",
            batch=2,
            rows=128,
            columns=256,
            inner=512,
            dtype="bfloat16",
            accumulate=True,
            sustained=False,
        ),
    ),
    "attention_time": Call(
        hardware.attention_time,
        lambda: dict(
            device="A100",
            kernel="fa2",
            heads=16,
            tokens=2048,
            head_dim=128,
            causal=False,
            backward=True,
            keys=4096,
            slowed=0.9,
        ),
    ),
    "torch_kernel": Call(hardware.torch_kernel, lambda: dict(device="A100", version=(2, 5))),
    "fused_softmax_available": Call(
        hardware.fused_softmax_available, lambda: dict(heads=28, micro_batch=2, tokens=2048, longest=2048)
    ),
    "memory_time": Call(hardware.memory_time, lambda: dict(device="H100", nbytes=1e6)),
    "nccl.Communicator": Call(
        hardware.nccl.Communicator,
        lambda: dict(
            ranks=8,
            nodes=2,
            channels=4,
            channel_bandwidth=1e9,
            generation="Hopper",
            intra_node="PCIe",
            cpu="AMD",
            tree_channel_bandwidth=2e9,
        ),
    ),
    "nccl.Communicator.latency": Call(hardware.nccl.A100_NODE.latency, lambda: dict(algorithm="tree", protocol="LL")),
    "nccl.Communicator.bandwidth": Call(
        hardware.nccl.A100_NODE.bandwidth, lambda: dict(algorithm="ring", protocol="Simple")
    ),
    "nccl.Communicator.seconds": Call(
        hardware.nccl.A100_NODE.seconds, lambda: dict(nbytes=1000, algorithm="ring", protocol="Simple")
    ),
    "nccl.Communicator.choice": Call(hardware.nccl.A100_NODE.choice, lambda: dict(nbytes=1000)),
    "nccl.a100_pod": Call(hardware.nccl.a100_pod, lambda: dict(nodes=2, cpu="AMD")),
    "costs.p2p_time": Call(costs.p2p_time, lambda: dict(nbytes=1000, link=LINK)),
    **{
        f"costs.{name}": collective(name)
        for name in (
            "ring_reduce_scatter",
            "ring_all_gather",
            "ring_all_reduce",
            "tree_broadcast",
            "tree_reduce",
            "tree_all_reduce",
            "halving_doubling_all_reduce",
            "recursive_doubling_all_reduce",
            "pairwise_all_to_all",
            "star_gather",
            "star_all_reduce",
            "direct_reduce_scatter",
            "direct_all_gather",
            "direct_all_reduce",
        )
    },
    "costs.star_in_chunks_all_reduce": Call(
        costs.star_in_chunks_all_reduce, lambda: dict(nbytes=1000, ranks=4, link=LINK, chunks=4)
    ),
    "costs.hierarchical_all_reduce": Call(
        costs.hierarchical_all_reduce,
        lambda: dict(nbytes=1000, ranks_per_node=4, nodes=2, intra_link=LINK, inter_link=LINK),
    ),
    "costs.multi_ring_all_reduce": Call(
        costs.multi_ring_all_reduce,
        lambda: dict(nbytes=1000, ranks_per_node=4, nodes=2, intra_link=LINK, inter_link=LINK),
    ),
    "costs.halving_doubling_over_nodes": Call(
        costs.halving_doubling_over_nodes,
        lambda: dict(nbytes=1000, ranks_per_node=4, nodes=2, intra_link=LINK, inter_link=LINK, first="farthest"),
    ),
}
STEPS = "what the formulas are made of"
REASONS = {f"costs.{name}": STEPS for name in ("total_time", "partners")}
REASONS |= {
    f"costs.{name}_steps": STEPS
    for name in ("ring", "tree", "star", "star_in_chunks", "direct", "halving_doubling", "recursive_doubling")
}
REASONS |= {
    "nccl.Choice": "what a communicator gives",
    "nccl.one_way": "a rule",
    "nccl.by_protocol": "the data's own",
    "nccl.tree_correction": "the model's own",
    "published.TrainingRun": "data",
    "published.LayerTime": "data",
    "published.ServedRate": "data",
    "published.StepMemory": "data",
    "published_speed_ups.SpeedUp": "data",
    "published_speed_ups.FourBits": "data",
    "published_speed_ups.SpeedUpRange": "data",
    "published.by_size": "what data is written with",
}
REASONS |= {
    "Resource": "only made by a cluster",
    "ALGORITHMS": "data",
    "CLUSTERS": "data",
    "DEVICES": "data",
    "LINKS": "data",
    "RATES": "data",
    "TILES": "data",
}
