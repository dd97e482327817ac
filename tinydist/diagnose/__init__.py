"""Diagnosis: find stragglers and hangs of a run, and check the installation.

command.py          ``python -m tinydist diagnose``: from traces, or from PyTorch's Flight Recorder dumps
messages.py         recvs that nobody has sent
causes.py           where a hang in several groups began
recorded_calls.py   reads the calls in traces and Flight Recorder dumps
torchfrtrace.py     runs PyTorch's own comparison of Flight Recorder dumps, on those of gloo too
doctor.py           ``python -m tinydist doctor``, which runs without any dependency installed
"""

from .command import diagnose, files_in
from .recorded_calls import read
from .torchfrtrace import first_report, torchfrtrace

__all__ = ["diagnose", "files_in", "first_report", "read", "torchfrtrace"]
