"""How the command line is written where it is printed: so that it can be pasted there."""

import os
import shlex
import shutil
import sys

from .waiting import in_notebook


def command(*words, python=sys.executable):
    """``python -m tinydist`` and ``words``, for the shell and the folder in which this runs, or for a cell."""
    runs = "%run" if in_notebook() else shlex.quote(shortest(python))
    return " ".join([runs, "-m", "tinydist", *words])


def shortest(python):
    name = os.path.basename(python)
    return name if shutil.which(name) == python else min(os.path.relpath(python), python, key=len)
