"""Pictures of a run. Each is drawn from the trace, returned as a figure, and said in one printed line.

timeline.py     who computed, communicated and waited, and when
timelines.py    what one rank did in several runs
memory.py       what a rank held, by purpose
memories.py     what it held in several runs
traffic.py      who sent how many bytes to whom
topology.py     the cluster, and how busy its links were
schedule.py     who does which pass of a pipeline, and when
filmstrip.py    whose numbers each rank holds, step by step
matrices.py     tables of numbers: who reads whom, and how much
bars.py         numbers beside one another
curves.py       numbers that grow
explorer.py     sliders above a picture
summary.py      what a notebook shows for a run
palette.py      what each color means; style.py: how every picture looks
canvas.py       what is drawn on: texts that fit, axes with units
page.py         how a notebook shows and keeps it; save; use_style
words.py        seconds and bytes, as they are written
"""

from .bars import bars
from .curves import curves
from .explorer import Explorer
from .filmstrip import filmstrip
from .matrices import matrices
from .memories import memories
from .memory import memory
from .page import use_style
from .schedule import schedule, schedules
from .timeline import timeline
from .timelines import timelines
from .topology import cluster
from .traffic import traffic

__all__ = [
    "Explorer",
    "bars",
    "cluster",
    "curves",
    "filmstrip",
    "matrices",
    "memories",
    "memory",
    "schedule",
    "schedules",
    "timeline",
    "timelines",
    "traffic",
    "use_style",
]
