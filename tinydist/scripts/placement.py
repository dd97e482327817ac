"""Where the ranks of a job are: ``nodes`` x ``per_node``, as torchrun would place them, on a cluster's nodes."""

from dataclasses import dataclass, replace

from ..hardware import Cluster, find_cluster


@dataclass(frozen=True)
class Placement:
    nodes: int
    per_node: int
    cluster: Cluster | None = None  # None: nodes of 8 A100s, or of as many as there are processes

    @property
    def ranks(self):
        return self.nodes * self.per_node

    def with_processes(self, ranks):
        """Of ``ranks`` processes that a script has started on its node."""
        return Placement(1, ranks, self.cluster)

    def on(self):
        """The cluster, with a node for each of the job's nodes."""
        node = find_cluster("A100 node")
        cluster = self.cluster or replace(node, devices_per_node=max(node.devices_per_node, self.per_node))
        if self.per_node > cluster.devices_per_node:
            raise ValueError(
                f"run: {self.per_node} processes per node exceed the {cluster.devices_per_node} devices of a node of "
                f"the cluster: {cluster}"
            )
        if self.nodes == 1:
            return cluster
        if cluster.inter_node is None:
            raise ValueError(f"run: --nnodes {self.nodes} requires a cluster whose nodes are joined, got {cluster}")
        cards = cluster.cards_per_node and min(cluster.cards_per_node, self.per_node)
        return replace(cluster, nodes=self.nodes, devices_per_node=self.per_node, cards_per_node=cards)
