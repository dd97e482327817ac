"""Training: data, tensor and pipeline parallelism, composed of the library's own parts.

plan.py         the size of each axis and what is chosen besides; every rule, with the equation that fails
mesh.py         ranks in four axes, and which link an axis lies on
parallelize.py  a model, by a plan, in one visible order
together.py     the stages of a rank step as one: one norm, one decision
engine.py       a training step, in halves or whole; evaluation
"""

from .engine import Engine, Step
from .mesh import AXES, link_of, make_mesh, members, place_of
from .parallelize import parallelize
from .plan import Plan

__all__ = ["AXES", "Engine", "Plan", "Step", "link_of", "make_mesh", "members", "parallelize", "place_of"]
