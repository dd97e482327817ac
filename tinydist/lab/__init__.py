"""The exercises: what is asked, the check on three axes, hints, and how far the reader has come.

exercise.py     what an exercise is; the catalogue
untouched.py    has the learner begun?
verdict.py      the properties of an answer, judged in order
errors.py       what was raised, on which rank, at which line
limit.py        no answer runs for ever
ranks.py        an answer on simulated ranks: worlds of several sizes; alone.py: one that needs no ranks
own_work.py     the functions that an answer calls, and those that it should not
values.py       the first axis; sums.py: whose numbers are missing in a sum
messages.py     the second: what was sent, to whom; collectives.py: the same of collectives
heard.py        do results come from what was sent?
memory.py       the third: what was held
seconds.py      virtual time, where it is the point
reader.py       what a reader calls: check, hint
page.py         what is said, in a terminal and in a notebook
progress.py     what the reader has done
notebook.py     the reader's notebook, from outside of it
whole_files.py  files that are written at once or not at all, by one at a time
commands.py     the command line
chapters/       the exercises themselves
"""

from . import author as author  # so that all of the lab is there to be remembered
from . import chapters as chapters  # they enter the catalogue
from . import tools
from .reader import check, hint
from .verdict import judge

tools.remember()

__all__ = ["check", "hint", "judge"]
