"""The front door: run one function on N ranks of any world.

launch.py       ``launch``, and the ``Run`` that comes of it
options.py      what launch takes: one rule for each option
worlds.py       simulated ranks, processes, the ranks of a job: how a run begins
torchrun.py     this process as a rank of a job that has begun
"""

from .launch import Run, launch

__all__ = ["Run", "launch"]
