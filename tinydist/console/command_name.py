"""Formats ``tinydist`` command lines so that they can be pasted into the current shell or notebook."""

import os
import shlex
import shutil
import sys

from .progress_message import in_notebook


def command(*words, python=sys.executable):
    """``python -m tinydist`` and ``words``, for the shell and the folder in which this runs, or for a cell."""
    runs = "%run" if in_notebook() else shlex.quote(shortest(python))
    return " ".join([runs, "-m", "tinydist", *words])


def shortest(python):
    name = os.path.basename(python)
    return name if shutil.which(name) == python else min(os.path.relpath(python), python, key=len)
