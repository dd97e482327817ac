"""The color palette: the meaning of each color, the same in every plot.

    RANKS                 an owner: whose part, whose number, whose message
    COMPUTE               blue: forward is light, backward dark, weights pale, so that they differ in grey too;
                          what is computed once more is hatched, in grey pictures as well
    COMMUNICATION         orange
    WAITING               hardly there
    MEMORY                bytes, by purpose
    RED                   what is to be looked at: the busiest, the peak, the bubble

In a picture of owners or of memory, what ranks do is grey: there a color is an owner, or a purpose, and nothing else.
The colors are those of Okabe and Ito (Color Universal Design, 2008), which color-blind readers tell apart.
"""

from functools import cache

import numpy as np
from matplotlib.colors import LinearSegmentedColormap, to_rgb

BLUE, ORANGE, GREEN, PURPLE, YELLOW, SKY = "#0072B2", "#E69F00", "#009E73", "#CC79A7", "#F0E442", "#56B4E9"
RED, PALE = "#D55E00", "#C6DDEF"
INK, DARK, SOFT, GREY, LINE, LIGHT, PAPER = "#181818", "#595959", "#707070", "#BBBBBB", "#D8D8D8", "#EEEEEE", "#FFFFFF"

RANKS = [BLUE, ORANGE, GREEN, PURPLE, SKY, RED, "#444444", YELLOW]

FORWARD = {"facecolor": SKY, "edgecolor": PAPER}
BACKWARD = {"facecolor": BLUE, "edgecolor": PAPER}
WEIGHTS = {"facecolor": PALE, "edgecolor": PAPER}
RECOMPUTE = {"facecolor": PALE, "edgecolor": SKY, "hatch": "////"}  # forward, for the second time
OPTIMIZER = {"facecolor": GREEN, "edgecolor": PAPER}
COMPUTE = BACKWARD
COMMUNICATION = {"facecolor": ORANGE, "edgecolor": PAPER}
RECEIVED = {"facecolor": PAPER, "edgecolor": ORANGE}
WAITING = {"facecolor": LIGHT, "edgecolor": GREY}

MEMORY = {
    "parameters": {"facecolor": BLUE, "edgecolor": PAPER},
    "gradients": {"facecolor": PURPLE, "edgecolor": PAPER},
    "optimizer states": {"facecolor": GREEN, "edgecolor": PAPER},
    "activations": {"facecolor": SKY, "edgecolor": PAPER},
    "communication": COMMUNICATION,
    "other": {"facecolor": GREY, "edgecolor": PAPER},
}
BLOCKS = {  # of a timeline
    "forward": FORWARD,
    "recompute": RECOMPUTE,
    "backward": BACKWARD,
    "weights": WEIGHTS,
    "optimizer": OPTIMIZER,
    "compute": COMPUTE,
    "other": {"facecolor": GREY, "edgecolor": PAPER},
    "communication": COMMUNICATION,
    "waiting": WAITING,
}
AXES = (  # what is sent along the axes of a device mesh, where a picture tells them apart
    COMMUNICATION,
    {"facecolor": PURPLE, "edgecolor": PAPER},
    {"facecolor": YELLOW, "edgecolor": PAPER},
)
GREYS = {kind: {"facecolor": DARK, "edgecolor": PAPER} for kind in BLOCKS} | {  # where colors mean something else
    "recompute": {"facecolor": PAPER, "edgecolor": GREY, "hatch": "////"},
    "communication": {"facecolor": LINE, "edgecolor": PAPER},
    "waiting": {"facecolor": PAPER, "edgecolor": LINE},
}
SERIES = (BLUE, ORANGE, GREEN, PURPLE, RED)  # what has no meaning of its own: lines, parts of a bar

NUMBERS = LinearSegmentedColormap.from_list("numbers", [PAPER, BLUE])
LUMINANCES = np.array([0.2126, 0.7152, 0.0722])
VEIL = 0.05  # of luminance, that a screen adds to everything


def tint(color, part):
    """``part`` of the way to white."""
    return tuple(channel + part * (1 - channel) for channel in to_rgb(color))


def contrast(one, other):
    """From 1 to 21; a text needs 4.5. Of two luminances, as the Web Content Accessibility Guidelines define them."""
    darker, lighter = sorted((luminance(one), luminance(other)))
    return float((lighter + VEIL) / (darker + VEIL))


@cache
def ink_on(color):
    """The color of a text on it."""
    return max((PAPER, INK), key=lambda ink: contrast(ink, color))


def luminance(colors):
    """Of each [..., RGB]."""
    return linear(colors) @ LUMINANCES


def linear(colors):
    colors = np.asarray(to_rgb(colors) if isinstance(colors, str) else colors)
    return np.where(colors <= 0.04045, colors / 12.92, ((colors + 0.055) / 1.055) ** 2.4)


def darkened(colors):
    """[..., RGB] for a dark slide: PAPER is INK there. Hues stay, and so does the contrast of any two."""
    light = luminance(colors)[..., None]
    wanted = ((luminance(INK) + VEIL) * (luminance(PAPER) + VEIL) / (light + VEIL) - VEIL).clip(0, 1)
    darker = linear(colors) * wanted / light.clip(1e-9)
    lighter = 1 - (1 - linear(colors)) * (1 - wanted) / (1 - light).clip(1e-9)
    found = np.where(wanted < light, darker, lighter).clip(0, 1)
    return np.where(found <= 0.0031308, 12.92 * found, 1.055 * found ** (1 / 2.4) - 0.055)
