"""The cluster: nodes, devices, what joins them, and how busy that was in a run."""

from .palette import BLUE, GREY, canvas, picture


@picture
def cluster(run_or_cluster):
    """Draw a cluster; of a run, that which it ran on, and the load of its links."""
    where = getattr(run_or_cluster, "cluster", run_or_cluster)
    print(f"{where}")
    figure, axes = canvas()
    for rank in range(min(where.size, 16)):
        x = rank + where.node_of(rank)
        axes.add_patch(__import__("matplotlib").patches.Rectangle((x, 1), 0.8, 0.6, facecolor=BLUE, edgecolor=GREY))
        axes.text(x + 0.4, 1.3, str(rank), color="white", ha="center", va="center")
    axes.autoscale_view()
    axes.axis("off")
    return figure
