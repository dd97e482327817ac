"""What is wrong? With a run: who keeps the others waiting. With this machine: is everything here that tinydist needs?

command.py          ``python -m tinydist diagnose``: by traces, and by PyTorch's Flight Recorder
recorded_calls.py   what traces and flight records say of calls
doctor.py           ``python -m tinydist doctor``, in a Python in which nothing need be installed
"""

from .command import diagnose, files_in
from .recorded_calls import read

__all__ = ["diagnose", "files_in", "read"]
