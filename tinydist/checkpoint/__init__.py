"""Checkpoints: saved whole or by shards, loaded by any number of ranks, in any stage of ZeRO or none.

save_load.py    all of a state: written, gathered, loaded, by all ranks or by none (unanimous.py)
state.py        what is saved of a parameter; pieces.py: where it lies in all of it; trained.py: and who is asked
rules.py        what may be loaded: of one save, complete, fitting, finite
files.py        as files: all of a save, or the one before
whole.py        a plain model and its optimizer, saved and loaded in the same way
"""

from .rules import CheckpointError
from .save_load import gathered, load, load_weights, save, sharded
from .whole import Whole

__all__ = ["CheckpointError", "Whole", "gathered", "load", "load_weights", "save", "sharded"]
