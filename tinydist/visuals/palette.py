"""What each color means, the same in every picture.

    RANKS                 an owner: whose part, whose number, whose message
    COMPUTE               blue: forward is light, backward dark, weights pale, so that they differ in grey too
    COMMUNICATION         orange
    WAITING               hardly there
    MEMORY                bytes, by purpose
    RED                   what is to be looked at: the busiest, the peak, the bubble

In a picture of owners, compute is dark grey and communication SOFT: there a color is an owner and nothing else. The
colors are those of Okabe and Ito (Color Universal Design, 2008), which color-blind readers tell apart.
"""

from matplotlib.colors import LinearSegmentedColormap, to_rgb

BLUE, ORANGE, GREEN, PURPLE, YELLOW, SKY = "#0072B2", "#E69F00", "#009E73", "#CC79A7", "#F0E442", "#56B4E9"
RED, PALE = "#D55E00", "#C6DDEF"
INK, DARK, SOFT, GREY, LINE, LIGHT, PAPER = "#222222", "#595959", "#707070", "#BBBBBB", "#D8D8D8", "#EEEEEE", "#FFFFFF"

RANKS = [BLUE, ORANGE, GREEN, PURPLE, SKY, RED, "#444444", YELLOW]

FORWARD = {"facecolor": SKY, "edgecolor": PAPER}
BACKWARD = {"facecolor": BLUE, "edgecolor": PAPER}
WEIGHTS = {"facecolor": PALE, "edgecolor": PAPER}
OPTIMIZER = {"facecolor": GREEN, "edgecolor": PAPER}
COMPUTE = BACKWARD
COMMUNICATION = {"facecolor": ORANGE, "edgecolor": PAPER}
RECEIVED = {"facecolor": PAPER, "edgecolor": ORANGE}
WAITING = {"facecolor": LIGHT, "edgecolor": GREY}

MEMORY = {
    "parameters": {"facecolor": BLUE, "edgecolor": PAPER},
    "gradients": {"facecolor": RED, "edgecolor": PAPER},
    "optimizer states": {"facecolor": GREEN, "edgecolor": PAPER},
    "activations": {"facecolor": SKY, "edgecolor": PAPER},
    "communication": COMMUNICATION,
    "other": {"facecolor": GREY, "edgecolor": PAPER},
}
SERIES = (BLUE, ORANGE, GREEN, PURPLE, RED)  # what has no meaning of its own: lines, parts of a bar

BYTES_SENT = LinearSegmentedColormap.from_list("bytes sent", [PAPER, ORANGE])
NUMBERS = LinearSegmentedColormap.from_list("numbers", [PAPER, BLUE])


def tint(color, part):
    """``part`` of the way to white."""
    return tuple(channel + part * (1 - channel) for channel in to_rgb(color))


def lightness(color):
    """How light it is in grey, 0 to 1."""
    red, green, blue = to_rgb(color)
    return 0.299 * red + 0.587 * green + 0.114 * blue


def luminance(color):
    """Relative, as the Web Content Accessibility Guidelines define it."""
    red, green, blue = (part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in to_rgb(color))
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(one, other):
    """From 1 to 21; a text needs 4.5."""
    darker, lighter = sorted((luminance(one), luminance(other)))
    return (lighter + 0.05) / (darker + 0.05)


def ink_on(color):
    """The color of a text on it."""
    return max((PAPER, INK), key=lambda ink: contrast(ink, color))
