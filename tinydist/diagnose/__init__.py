"""Diagnosis: find stragglers and hangs of a run, and check the installation.

command.py          ``python -m tinydist diagnose``: from traces, or from PyTorch's Flight Recorder dumps
recorded_calls.py   reads the calls in traces and Flight Recorder dumps
doctor.py           ``python -m tinydist doctor``, which runs without any dependency installed
"""

from .command import diagnose, files_in
from .recorded_calls import read

__all__ = ["diagnose", "files_in", "read"]
