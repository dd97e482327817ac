"""``launch``: run one function on N ranks, on any backend.

launch.py       ``launch``, and the ``Run`` that comes of it
options.py      what launch takes: one rule for each option
backends.py     how a run begins: simulated ranks, processes, the ranks of a job under torchrun
"""

from .launch import Run, launch

__all__ = ["Run", "launch"]
