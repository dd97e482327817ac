"""Checkpoints: full or sharded, loaded by any number of ranks (resharded), with any ZeRO stage or none.

save_load.py        save, load, gathered, sharded: by all ranks or by none (consensus.py)
state.py            the sharded state dict; shard_overlap.py: resharding
rules.py            what may be loaded: of one save, complete, fitting, finite
files.py            as files: a save is complete, or the previous one stays
checkpointable.py   what can be saved: the base class; an unsharded model and its optimizer
"""

from .checkpointable import UnshardedModel
from .rules import CheckpointError
from .save_load import gathered, load, load_weights, save, sharded

__all__ = ["CheckpointError", "UnshardedModel", "gathered", "load", "load_weights", "save", "sharded"]
