"""Plots of a run. Each is drawn from the trace, returned as a figure, and summarized in one printed line.

timeline.py             who computed, communicated and waited, and when, in one run or several
memory.py               what a rank held, by purpose, also under a timeline, in one run or several
shard_map.py            placement of each layer's shards; ownership_timeline.py: placement over time
cut_tensors.py          tensors of a calculation in their shapes: parts, copies, summands
traffic.py              who sent how many bytes to whom
topology.py             the cluster, and how busy its links were
graph.py                boxes and arrows, in rows
groups.py               process groups along each axis of a device mesh; call_grid.py: the calls of each rank, by line
model_cut.py            which rank holds which part of which layer
schedule.py             pipeline schedules over time
memory_plan.py          buffers on the bytes that they have, step by step
steps.py                what each rank holds, step by step; step_cells.py: what is in a cell; film.py: a run for it
matrices.py             heat maps: attention weights, masks
bars.py                 bar and waterfall charts; table.py: small tables
curves.py               line plots; histograms.py: sizes of numbers
bit_fields.py           the bits of a number in several formats; number_line.py: which numbers a format has
step_costs.py           time and memory of a training step, in several ways
reference.py            training curves beside that of one rank
rank_values.py          what each rank has, and their average
batch_shares.py         how a batch is dealt to ranks
pareto_front.py         Pareto fronts; scatter.py: points with their names; plan_scatter.py: plans by MFU and memory
seeds.py                what several seeds of each choice gave
roofline.py             which operators are memory-bound
serving.py              whose tokens a KV block holds, block tables, which request has which slot of a batch
explorer.py             interactive controls for a plot
stored_outputs.py       stored outputs for cells that need an optional package
summary.py              what a notebook shows for a run

block_names.py          what blocks are called: F1, AR2; scene.py: the blocks of some ranks, from when to when
timeline_rows.py        blocks as they are drawn; time_axis.py: strips on one axis of time
ownership_grid.py       ranks x layers in the owners' colors; memory_states.py: what a rank held over time
palette.py              what each color means; formatting.py: seconds and bytes as text
figure.py               the figure class, its style, and how a notebook shows and saves it
contents.py             which colors and shapes a figure has, in words
canvas.py               figures and axes with units; text that fits its box; legends
"""

from .bars import bars, waterfall
from .batch_shares import batch_shares
from .bit_fields import bit_fields
from .call_grid import call_grid
from .curves import curves
from .cut_tensors import cut_tensors
from .explorer import Explorer
from .figure import use_style
from .film import film
from .groups import groups
from .histograms import histograms
from .matrices import matrices
from .memory import memories, memory, timeline_over_memory
from .model_cut import model_cut
from .number_line import number_line
from .ownership_timeline import ownership_timeline
from .pareto_front import pareto_front
from .plan_scatter import plan_scatter
from .rank_values import rank_values
from .reference import against_reference
from .roofline import roofline
from .scatter import scatter
from .schedule import schedule, schedules
from .seeds import seeds
from .serving import block_owners, block_tables, slots
from .shard_map import shard_map
from .step_costs import step_costs
from .steps import stepper, steps
from .table import beside, table
from .timeline import timeline, timelines
from .topology import cluster
from .traffic import traffic

__all__ = [
    "Explorer",
    "against_reference",
    "bars",
    "batch_shares",
    "beside",
    "bit_fields",
    "block_owners",
    "block_tables",
    "call_grid",
    "cluster",
    "curves",
    "cut_tensors",
    "film",
    "groups",
    "histograms",
    "matrices",
    "memories",
    "memory",
    "model_cut",
    "number_line",
    "ownership_timeline",
    "pareto_front",
    "plan_scatter",
    "rank_values",
    "roofline",
    "scatter",
    "schedule",
    "schedules",
    "seeds",
    "shard_map",
    "slots",
    "step_costs",
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
