"""The cluster: nodes, devices, what joins them, and how busy that was in a run.

The load of a link is the part of the run in which bytes passed on it. Of a port or card, which sends and receives at
the same time, it is that of the busier direction.
"""

from collections import Counter
from itertools import combinations

from matplotlib.patches import Arc, FancyBboxPatch

from ..hardware import Cluster
from ..launch import Run
from ..rules import takes
from .canvas import canvas, picture
from .palette import BLUE, BYTES_SENT, GREY, LIGHT
from .words import bytes_text, percent, seconds_text

MOST_DEVICES = 16  # more cannot be told apart
SWITCH, DEVICE, CARD, NETWORK = 3.2, 2.0, 0.9, 0.0  # how high each stands
SIZE = 0.36  # half of a device's side
PAPER = {"facecolor": "white", "edgecolor": "none", "pad": 0.5}
DIRECTIONS = {"port": ("port out", "port in"), "card": ("card out", "card in")}


@takes(run_or_cluster=Run | Cluster)
@picture
def cluster(run_or_cluster):
    """Draw a cluster; of a run, that which it ran on, and the load of its links."""
    where = getattr(run_or_cluster, "cluster", run_or_cluster)
    run = None if where is run_or_cluster else run_or_cluster
    load = loads(run) if run else Counter()
    print(in_words(where) + (busiest(where, load, run.seconds) if load else ""))
    ranks = len(run.traffic) if run else where.size
    drawn = min(where.nodes, max(1, MOST_DEVICES // where.devices_per_node))
    figure, axes = canvas("", height=2.5 if where.nodes > 1 else 1.7)
    for node in range(drawn):
        draw_node(axes, where, node, ranks, load)
    if where.nodes > 1:
        draw_network(axes, where, drawn)
    frame(axes, where, drawn, load)
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


def in_words(where):
    nodes = f"{where.nodes} node{'s' * (where.nodes > 1)} x {where.devices_per_node} {where.device}"
    inside = f"; {speed(where.inside)} inside" if where.devices_per_node > 1 else ""
    return nodes + inside + (f"; {speed(where.between)} between" if where.nodes > 1 else "")


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


def draw_node(axes, where, node, ranks, load):
    left = node * (where.devices_per_node + 0.6)
    centers = [left + local + 0.5 for local in range(min(where.devices_per_node, MOST_DEVICES))]
    box(axes, left - 0.1, centers[-1] + 0.6, CARD - 0.26 if where.nodes > 1 else DEVICE - 0.6, SWITCH + 0.75, "white")
    axes.text(left, SWITCH + 0.83, f"node {node}: {where.device}", va="bottom", fontsize=8)
    if len(centers) > 1:
        draw_inside(axes, where, node, centers, load)
    if where.nodes > 1:
        draw_cards(axes, where, node, centers, load)
    for local, center in enumerate(centers):
        rank = node * where.devices_per_node + local
        used = rank < ranks
        box(axes, center - SIZE, center + SIZE, DEVICE - SIZE, DEVICE + SIZE, BLUE if used else LIGHT)
        axes.text(center, DEVICE, str(rank), color="white" if used else "black", ha="center", va="center")


def draw_inside(axes, where, node, centers, load):
    if where.inside.shape == "mesh":
        for a, b in combinations(range(len(centers)), 2):
            part = max(load["wire", node, (a, b)], load["wire", node, (b, a)])
            wire(axes, centers[a], centers[b], part, centers[-1] - centers[0])
        axes.text(sum(centers) / len(centers), SWITCH + 0.35, speed(where.inside), ha="center", fontsize=8)
        return
    for local, center in enumerate(centers):
        if where.inside.shape == "switch":
            link(axes, center, DEVICE + SIZE, SWITCH, loaded(load, "port", node, local))
        else:
            link(axes, center, DEVICE + SIZE, SWITCH, 0)
    bus = load["bus", node, 0]
    text = speed(where.inside) + (f": {100 * bus:.0f}" if bus else "")
    bar(axes, centers[0] - SIZE, centers[-1] + SIZE, SWITCH, shade(bus) if bus else LIGHT, text)


def draw_cards(axes, where, node, centers, load):
    cards = [where.card_of(local) for local in range(len(centers))]
    for local, (center, card) in enumerate(zip(centers, cards)):
        shared = [other for other, its in enumerate(cards) if its == card]
        middle = sum(centers[other] for other in shared) / len(shared)
        axes.plot([center, middle], [DEVICE - SIZE, CARD], color=GREY, zorder=1)
        if local == shared[0]:
            link(axes, middle, CARD, NETWORK, loaded(load, "card", node, card))
            box(axes, middle - 0.3, middle + 0.3, CARD - 0.16, CARD + 0.16, LIGHT)
            if len(centers) <= 4:
                axes.text(middle, CARD, "card", ha="center", va="center", fontsize=7)


def draw_network(axes, where, drawn):
    right = drawn * (where.devices_per_node + 0.6) - 0.7
    more = f", and {where.nodes - drawn} more nodes" if drawn < where.nodes else ""
    bar(axes, 0.1, right, NETWORK, LIGHT, speed(where.between) + " a card" + more)


def loaded(load, kind, node, number):
    """Of the busier direction."""
    return max(load[direction, node, number] for direction in DIRECTIONS[kind])


def shade(part):
    return BYTES_SENT(0.5 + 0.5 * min(part, 1.0)) if part else GREY


def link(axes, x, low, high, part):
    axes.plot([x, x], [low, high], color=shade(part), linewidth=1 + 5 * min(part, 1.0), zorder=1)
    if part:
        axes.text(x + 0.08, (low + high) / 2, f"{100 * part:.0f}", va="center", fontsize=7)


def wire(axes, a, b, part, longest):
    middle, height = (a + b) / 2, 0.25 + 0.7 * (b - a) / longest
    look = {"color": shade(part), "linewidth": 1 + 5 * min(part, 1.0), "zorder": 1}
    axes.add_patch(Arc((middle, DEVICE + SIZE), b - a, 2 * height, theta1=0, theta2=180, **look))
    if part:
        axes.text(middle, DEVICE + SIZE + height, f"{100 * part:.0f}", ha="center", va="center", fontsize=7, bbox=PAPER)


def bar(axes, left, right, y, color, text):
    box(axes, left, right, y - 0.2, y + 0.2, color)
    axes.text((left + right) / 2, y, text, ha="center", va="center", fontsize=8, zorder=3)


def box(axes, left, right, bottom, top, color):
    look = {"facecolor": color, "edgecolor": GREY, "linewidth": 0.8, "zorder": 0 if color == "white" else 2}
    corners = "round,pad=0,rounding_size=0.06"
    axes.add_patch(FancyBboxPatch((left, bottom), right - left, top - bottom, boxstyle=corners, **look))


def frame(axes, where, drawn, load):
    width = drawn * (min(where.devices_per_node, MOST_DEVICES) + 0.6) - 0.6
    room = max(width, 8) + 0.6  # a small cluster is not blown up
    axes.set_xlim((width - room) / 2, (width + room) / 2)
    axes.set_ylim(NETWORK - 0.7 if where.nodes > 1 else DEVICE - 1.1, SWITCH + 1.3)
    axes.axis("off")
    if load:
        note = "numbers: % of the run in which bytes pass"
        axes.text(1, 0, note, transform=axes.transAxes, ha="right", va="bottom", fontsize=8)
