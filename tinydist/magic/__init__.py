"""The ``%%ranks 4`` magic runs a cell on each of four ranks. ``%load_ext tinydist`` registers it.

    the notebook                            a rank, simulated or a process
      | the cell, compiled; copies of the names that it uses --> |  puts them into its namespace, runs the cell there
      | <--------------- what its last line is; what it printed  |
      | a look at one of its variables, later -----------------> |  still has them, until the next %%ranks cell

namespace.py  copies of the notebook's variables for a rank, and what it keeps of a cell
session.py    ranks that keep their variables between cells; ``ranks[2].loss`` reads them from the notebook
command.py    the magic: options, execution of a cell, output
"""

from .command import RanksMagic

__all__ = ["RanksMagic"]
