"""``%%ranks 4`` above a cell: the cell is the program of each of four ranks. ``%load_ext tinydist`` makes it known.

    the notebook                            a rank, simulated or a process
      | the cell, compiled; copies of the names that it uses --> |  puts them into names of its own, runs the cell there
      | <--------------- what its last line is; what it printed  |
      | a look at one of its variables, later -----------------> |  still has them, until the next %%ranks cell

copies.py     the notebook's names, as a rank gets them: its own of everything but modules
room.py       what a rank keeps of a cell
session.py    ranks that share their variables between cells; ``ranks[2].loss``: these, seen from the notebook
command.py    the magic itself: its options, a cell as a program, what is shown
"""

from .command import RanksMagic

__all__ = ["RanksMagic"]
