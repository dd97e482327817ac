"""``%%ranks 4`` above a cell: the cell is the program of each of four ranks. ``%load_ext tinydist`` makes it known.

    the notebook                            a rank, simulated or a process
      | the cell, compiled; copies of the names that it uses --> |  puts them into names of its own, runs the cell there
      | <--------------- what its last line is; what it printed  |
      | a look at one of its variables, later -----------------> |  still has them, until the next %%ranks cell

cell.py       a cell: its program, where its lines stand, which names it uses
copies.py     the notebook's names, as a rank gets them: its own of everything but modules
room.py       what a rank keeps of a cell; program.py: what it does with one
session.py    ranks that share their variables between cells
ranks.py      ``ranks[2].loss``: a rank's variables, seen from the notebook
command.py    the magic itself: its options, and what is shown
"""

from .command import RanksMagic

__all__ = ["RanksMagic"]
