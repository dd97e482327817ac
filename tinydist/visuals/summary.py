"""What a notebook shows for a run: its timeline."""

import base64

import matplotlib.pyplot as plt

from .palette import png
from .timeline import timeline


def picture_of(run):
    """The mimebundle of a run, without text; None if there is nothing to draw."""
    if run.record is None or not run.trace.events:
        return None
    figure = timeline(run)
    plt.close(figure)  # else pyplot would show it too
    return {"image/png": base64.b64encode(png(figure)).decode()}
