"""What a notebook shows for a run: its timeline. For its traffic and its memory: theirs."""

import matplotlib.pyplot as plt

from ..tracing.trace import Memory, Traffic
from .memory import memory
from .page import mimebundle
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
    if isinstance(shown, Traffic):
        return traffic(shown.trace) if any(map(any, shown)) else None
    if isinstance(shown, Memory):
        fullest = max(range(len(shown)), key=lambda rank: shown[rank].peak)
        return memory(shown.trace, fullest) if shown[fullest].changes else None
    return timeline(shown) if shown.record is not None and shown.trace.events else None
