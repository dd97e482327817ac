"""Cluster topology: nodes, devices and links, and the utilization of links in a run.

The load of a link is the part of the run in which bytes passed on it. What sends and receives at the same time has an
arrow for each direction, and the number of the busier. The busiest are red.
"""

from collections import Counter
from itertools import combinations

from matplotlib.patches import Arc, FancyBboxPatch

from ..hardware import Cluster
from ..launching.launch import Run
from ..rules import validate
from .canvas import canvas, inside, picture
from .figure import SMALL
from .formatting import bytes_text, counted, percent, seconds_text, tell
from .palette import DARK, GREY, INK, LIGHT, ORANGE, PAPER, RED, SOFT, ink_on

MOST_DEVICES = 16  # more cannot be told apart
SWITCH, DEVICE, CARD, NETWORK = 3.5, 2.2, 1.1, 0.0  # how high each stands
SIZE, APART = 0.32, 0.09  # half of a device's side; of the two directions from the middle
SAME = 0.999  # of the busiest: as busy
DIRECTIONS = {"port": ("port out", "port in"), "card": ("card out", "card in")}


@validate(run_or_cluster=Run | Cluster)
@picture
def cluster(run_or_cluster):
    """Draw a cluster; of a run, that which it ran on, and the load of its links."""
    where = getattr(run_or_cluster, "cluster", run_or_cluster)
    run = None if where is run_or_cluster else run_or_cluster
    load = loads(run) if run else Counter()
    text = in_words(where) + (busiest(where, load, run.seconds) if load else "")
    tell(text)
    drawn = min(where.nodes, max(1, MOST_DEVICES // where.devices_per_node))
    figure, axes = canvas(f"A drawing of {text}.", 3.0 if where.nodes > 1 else 2.0)
    Drawing(axes, where, load, len(run.traffic) if run else where.size, drawn, across_nodes(run) if run else ()).draw()
    return figure


def loads(run):
    """Resource -> the part of the run in which bytes passed on it."""
    found = Counter()
    for source, row in enumerate(run.traffic):
        for destination, nbytes in enumerate(row):
            if nbytes and source != destination:
                bandwidth = run.cluster.link(source, destination).bandwidth
                for resource in run.cluster.resources(source, destination):
                    found[resource] += nbytes / bandwidth / run.seconds
    return found


def across_nodes(run):
    """Ranks that send to another node, or get from one."""
    pairs = [(a, b) for a, row in enumerate(run.traffic) for b, nbytes in enumerate(row) if nbytes]
    return {rank for pair in pairs if len({run.cluster.node_of(each) for each in pair}) == 2 for rank in pair}


def in_words(where):
    nodes = f"{counted(where.nodes, 'node')} x {where.devices_per_node} {where.device}"
    inside = f"; {speed(where.intra_node)} inside" if where.devices_per_node > 1 else ""
    return nodes + inside + (f"; {speed(where.inter_node)} between" if where.nodes > 1 else "")


def speed(link):
    return f"{link}, {bytes_text(link.bandwidth)}/s"


def busiest(where, load, seconds):
    resource, most = max(load.items(), key=lambda item: item[1])
    kind = resource.kind.split()[0]
    if kind == "port":
        name = f"port of rank {resource.node * where.devices_per_node + resource.number}"
    elif kind == "wire":
        name = "wire of ranks " + " and ".join(str(resource.node * where.devices_per_node + n) for n in resource.number)
    else:
        name = f"{kind} {resource.number} of node {resource.node}" if kind == "card" else f"bus of node {resource.node}"
    return f"; busiest: {name}, {percent(most)} of {seconds_text(seconds)}"


class Drawing:
    """A cluster on ``axes``, of which ``drawn`` nodes have room; ranks from ``ranks`` on are not used, and those in
    ``across`` use the network."""

    def __init__(self, axes, where, load, ranks, drawn, across=()):
        self.axes, self.where, self.load, self.ranks, self.drawn, self.across = axes, where, load, ranks, drawn, across
        most, least = max(load.values(), default=0.0), min(load.values(), default=0.0)
        self.busy = SAME * most if least < SAME * most else float("inf")  # where all are as busy, none is marked
        self.per_node = min(where.devices_per_node, MOST_DEVICES)
        self.step = self.per_node + 0.6  # from a node to the next

    def draw(self):
        for node in range(self.drawn):
            self.node(node)
        if self.where.nodes > 1:
            hidden = self.where.nodes - self.drawn
            more = f", and {counted(hidden, 'more node')}" if hidden else ""
            right = self.drawn * self.step - 0.7
            self.bar(0.1, right, NETWORK, LIGHT, speed(self.where.inter_node) + " a card" + more)
        self.frame()

    def node(self, node):
        left = node * self.step
        centers = [left + local + 0.5 for local in range(self.per_node)]
        low = CARD - 0.3 if self.where.nodes > 1 else DEVICE - 0.6
        self.box(left - 0.1, centers[-1] + 0.75, low, SWITCH + 0.75, PAPER)
        self.axes.text(left, SWITCH + 0.88, f"node {node}: {self.where.device}", va="bottom", fontsize=SMALL)
        if len(centers) > 1:
            self.mesh(node, centers) if self.where.intra_node.shape == "mesh" else self.switch(node, centers)
        if self.where.nodes > 1:
            self.cards(node, centers)
        for local, center in enumerate(centers):
            rank = node * self.where.devices_per_node + local
            color = DARK if rank < self.ranks else LIGHT
            self.box(center - SIZE, center + SIZE, DEVICE - SIZE, DEVICE + SIZE, color)
            self.axes.text(center, DEVICE, str(rank), color=ink_on(color), ha="center", va="center_baseline", zorder=3)

    def switch(self, node, centers):
        for local, center in enumerate(centers):
            both = self.directions("port", node, local) if self.where.intra_node.shape == "switch" else (0.0, 0.0)
            self.link(center, DEVICE + SIZE, SWITCH - 0.2, both)
        load = self.load["bus", node, 0]
        text = speed(self.where.intra_node) + (f": {percent(load)} busy" if load else "")
        self.bar(centers[0] - SIZE, centers[-1] + SIZE, SWITCH, self.color(load) if load else LIGHT, text)

    def mesh(self, node, centers):
        told = len(centers) <= 4  # numbers that do not overlap
        for a, b in combinations(range(len(centers)), 2):
            load = max(self.load["wire", node, (a, b)], self.load["wire", node, (b, a)])
            middle, high = (centers[a] + centers[b]) / 2, 0.2 + 0.75 * (b - a) / (len(centers) - 1)
            style = {"color": self.color(load), "linewidth": self.width(load), "zorder": 1 + load}
            arc = Arc((middle, DEVICE + SIZE), centers[b] - centers[a], 2 * high, theta1=0, theta2=180, **style)
            self.axes.add_patch(arc)
            if load and told:
                paper = {"facecolor": PAPER, "edgecolor": "none", "pad": 0.5}
                self.number((middle, DEVICE + SIZE + high), load, "center", bbox=paper)
        self.axes.text(
            sum(centers) / len(centers), SWITCH + 0.35, speed(self.where.intra_node), ha="center", fontsize=SMALL
        )

    def cards(self, node, centers):
        cards = [self.where.card_of(local) for local in range(len(centers))]
        for local, (center, card) in enumerate(zip(centers, cards)):
            shared = [other for other, its in enumerate(cards) if its == card]
            middle = sum(centers[other] for other in shared) / len(shared)
            used = node * self.where.devices_per_node + local in self.across
            style = {"color": ORANGE, "linewidth": 2} if used else {"color": GREY, "linewidth": 1}
            self.axes.plot([center, middle], [DEVICE - SIZE, CARD], **style, zorder=1)
            if local == shared[0]:
                self.link(middle, CARD - 0.17, NETWORK + 0.2, self.directions("card", node, card))
                box = (middle - 0.32, CARD - 0.17, 0.64, 0.34)
                self.box(box[0], box[0] + box[2], box[1], box[1] + box[3], LIGHT)
                inside(self.axes, box, "card", LIGHT, together="cards")

    def directions(self, kind, node, number):
        """The loads (out, in)."""
        return tuple(self.load[direction, node, number] for direction in DIRECTIONS[kind])

    def link(self, x, start, end, both):
        """From a device, or its card, to what joins it with others, and back."""
        if not any(both):
            self.axes.plot([x, x], [start, end], color=GREY, linewidth=1, zorder=1)
        for load, side, way in [(both[0], -APART, (start, end)), (both[1], APART, (end, start))]:
            if load:
                style = {"color": self.color(load), "linewidth": self.width(load), "shrinkA": 0, "shrinkB": 0}
                arrow = style | {"arrowstyle": "-|>,head_length=0.35,head_width=0.2", "mutation_scale": 9}
                self.axes.annotate("", (x + side, way[1]), (x + side, way[0]), arrowprops=arrow, zorder=1)
        if any(both):
            self.number((x + 2 * APART + 0.05, (start + end) / 2), max(both), "left")

    def number(self, place, load, align, **style):
        busiest = load >= self.busy
        style |= {"color": RED if busiest else INK, "fontweight": "bold" if busiest else "normal", "zorder": 4}
        self.axes.text(
            *place, f"{100 * load:.0f}" if load >= 0.005 else "<1", ha=align, va="center", fontsize=SMALL, **style
        )

    def color(self, load):
        return GREY if not load else RED if load >= self.busy else ORANGE

    def width(self, load):
        return 1 + 2.5 * min(load, 1.0)

    def bar(self, left, right, y, color, text):
        self.box(left, right, y - 0.2, y + 0.2, color)
        style = {"ha": "center", "va": "center_baseline", "fontsize": SMALL, "color": ink_on(color), "zorder": 3}
        self.axes.text((left + right) / 2, y, text, **style)

    def box(self, left, right, bottom, top, color):
        style = {"facecolor": color, "edgecolor": GREY, "linewidth": 0.8, "zorder": 0 if color == PAPER else 2}
        corners = "round,pad=0,rounding_size=0.06"
        self.axes.add_patch(FancyBboxPatch((left, bottom), right - left, top - bottom, boxstyle=corners, **style))

    def frame(self):
        width = self.drawn * self.step - 0.6
        room = max(width, 8) + 0.6  # a small cluster is not blown up
        self.axes.set_xlim((width - room) / 2, (width + room) / 2)
        self.axes.set_ylim(NETWORK - 0.8 if self.where.nodes > 1 else DEVICE - 1.2, SWITCH + 1.4)
        self.axes.axis("off")
        if self.load:
            note = "numbers: % of the run in which bytes pass, in the busier direction"
            style = {"transform": self.axes.transAxes, "ha": "right", "va": "bottom", "fontsize": SMALL, "color": SOFT}
            self.axes.text(1, 0, note, **style)
