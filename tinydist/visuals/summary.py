"""The default plot of a run (its timeline), of its traffic and of its memory in a notebook."""

import matplotlib.pyplot as plt

from ..tracing.trace import MemoryView, TrafficView
from .figure import mimebundle
from .memory import memory
from .timeline import timeline
from .traffic import traffic


def picture_of(shown):
    """(data, metadata) of a run, or of its traffic or memory, without text; None if there is nothing to draw."""
    figure = draw(shown)
    if figure is None:
        return None
    plt.close(figure)  # else pyplot would show it too
    return mimebundle(figure)


def draw(shown):
    if isinstance(shown, TrafficView):
        return traffic(shown.trace) if any(map(any, shown)) else None
    if isinstance(shown, MemoryView):
        fullest = max(range(len(shown)), key=lambda rank: shown[rank].peak)
        return memory(shown.trace, fullest) if shown[fullest].changes else None
    return timeline(shown) if shown.record is not None and shown.trace.events else None
