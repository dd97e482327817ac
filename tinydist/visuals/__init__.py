"""Pictures of a run. Each is drawn from the trace, returned as a figure, and said in one printed line.

timeline.py     who computed, communicated and waited, and when: blocks with their names, of one run or several
memory.py       what a rank held, by purpose, also under a timeline, of one run or several
owners.py       who holds what of each layer; film.py: moment after moment
names.py        what blocks are called: F1, AR2; blocks.py: of what a rank did; scene.py: from where to where
rows.py         blocks as they are drawn; strips.py: on an axis of time; levels.py: on one of bytes
holdings.py     ranks x layers in the owners' colors; states.py: what a rank held over time
traffic.py      who sent how many bytes to whom
topology.py     the cluster, and how busy its links were
groups.py       who is in whose group, axis by axis of a mesh
schedule.py     who does which pass of a pipeline, and when
steps.py        whose numbers each rank holds, step by step; cells.py: what is in a cell; arrows.py: messages
matrices.py     matrices of numbers: who reads whom, and how much
bars.py         numbers beside one another; table.py: a few of them
curves.py       numbers that grow
front.py        two costs of many choices, and those that no other beats
waterfall.py    a sum, part by part, and what is missing to it
roofline.py     which operators wait for memory
explorer.py     sliders above a picture
stored.py       cells that need a package which not everybody has
summary.py      what a notebook shows for a run
palette.py      what each color means; style.py: how every picture looks
canvas.py       what is drawn on: texts that fit, axes with units
page.py         how a notebook shows and keeps it; save; use_style
words.py        seconds and bytes, as they are written
"""

from .bars import bars
from .curves import curves
from .explorer import Explorer
from .film import film
from .front import front
from .groups import groups
from .matrices import matrices
from .memory import memories, memory, timeline_over_memory
from .owners import owners
from .page import use_style
from .roofline import roofline
from .schedule import schedule, schedules
from .steps import stepper, steps
from .table import table
from .timeline import timeline, timelines
from .topology import cluster
from .traffic import traffic
from .waterfall import waterfall

__all__ = [
    "Explorer",
    "bars",
    "cluster",
    "curves",
    "film",
    "front",
    "groups",
    "matrices",
    "memories",
    "memory",
    "owners",
    "roofline",
    "schedule",
    "schedules",
    "stepper",
    "steps",
    "table",
    "timeline",
    "timeline_over_memory",
    "timelines",
    "traffic",
    "use_style",
    "waterfall",
]
