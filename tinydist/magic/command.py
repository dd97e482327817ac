"""The magic command: ``%%ranks 4 --backend gloo --cluster "H100 pod" --keep``."""

import ast
import dis
import linecache
import shlex
import sys
from collections import defaultdict
from functools import partial
from types import CodeType

from IPython.core.error import UsageError
from IPython.core.magic import Magics, cell_magic, magics_class
from IPython.core.magic_arguments import argument, magic_arguments
from IPython.display import display

from ..rules import ranks_in_words
from ..simulator.call_sites import learners_traceback
from .session import RanksSession


@magics_class
class RanksMagic(Magics):
    kept = None  # the session with which the next cell goes on

    @magic_arguments()
    @argument("ranks", type=int, nargs="?", default=4, help="how many (4)")
    @argument("--backend", help="simulated, gloo or nccl; as in launch")
    @argument("--cluster", help='cluster model for the timeline, e.g. "H100 pod"')
    @argument("--gpus", action="store_true", help="the cell sees cuda devices, those of the cluster (as in launch)")
    @argument("--keep", action="store_true", help="keep the variables for the next cell of ranks")
    @cell_magic
    def ranks(self, line, cell):
        """Run the cell as the program of each rank, with the notebook's names: each rank has copies of its own.

        A rank's output and the value of its last line are shown with its rank, then a plot of the run; a ``;`` at the
        end hides the value and the plot. Afterwards ``ranks[2].loss`` is a variable of rank 2.
        """
        asked = self.asked(line)
        program, session = Cell(self.shell, line, cell), self.session(asked.ranks, asked.backend)
        try:
            run = session.run(program, self.shell.user_ns, cluster=asked.cluster, gpus=asked.gpus)
        except BaseException as error:
            error._render_traceback_ = partial(self.lines_of, error)
            raise
        finally:
            if session.ranks:
                self.shell.user_ns["ranks"] = session.ranks
        self.kept = session if asked.keep else None
        session.ranks.run = run
        if not program.quiet:
            show(run)

    def asked(self, line):
        try:
            return self.ranks.parser.parse_args(shlex.split(line))
        except ValueError as error:
            raise UsageError(f"%%ranks {line}: {error}") from None

    def session(self, ranks, backend):
        """The one that was kept, if it is of these ranks."""
        kept, self.kept = self.kept, None
        if kept and (kept.size, kept.backend) == (ranks, backend):
            return kept
        if kept:
            print(f"The kept ranks were stopped, because this cell asks for others: {kept.ranks}")
        return RanksSession(ranks, backend)

    def lines_of(self, error):
        """Its report, without the frames between the notebook and the cell's own lines. IPython asks for it."""
        return self.shell.InteractiveTB.structured_traceback(type(error), error, learners_traceback(error))


def show(run):
    """Show the value of the last line, grouped by ranks, and a plot of the run, if there is something to plot."""
    alike = defaultdict(list)
    for rank, text in enumerate(run.results):
        alike[text].append(rank)
    for text, ranks in alike.items():
        if text is not None:
            print(f"{ranks_in_words(ranks)}:", f"\n{text}" if "\n" in text else text)
    picture = run._repr_mimebundle_()
    if picture:
        display(picture[0], metadata=picture[1], raw=True)


# A cell as a program: compiled so that errors name the cell and its own line.


LOOKS_UP = {"LOAD_NAME", "LOAD_GLOBAL", "LOAD_FROM_DICT_OR_GLOBALS", "DELETE_NAME", "DELETE_GLOBAL"}


class Cell:
    """``text``, below its first line ``%%ranks ...``. ``body``: code; ``last``: that of its last line, if that has a
    value; ``quiet``: but not one to be shown. Raises SyntaxError."""

    def __init__(self, shell, line, text):
        name, whole = file_of_cell(shell.user_ns), f"%%ranks {line}\n{text}"
        linecache.cache[name] = len(whole), None, whole.splitlines(keepends=True), name
        tree = ast.parse("\n" + text, name)
        last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
        self.body = compile(tree, name, "exec", dont_inherit=True)
        self.last = last and compile(ast.Expression(last.value), name, "eval", dont_inherit=True)
        self.quiet = text.rstrip().endswith(";")

    @property
    def names(self):
        """Those that it looks up outside of its functions, or that they do."""
        return names_in(self.body) | (names_in(self.last) if self.last else set())


def file_of_cell(notebook):
    """As IPython calls the cell that is being run, whose code is just this magic."""
    frame = sys._getframe()
    while frame and frame.f_globals is not notebook:
        frame = frame.f_back
    return frame.f_code.co_filename if frame else "<ranks>"


def names_in(code):
    found = {each.argval for each in dis.get_instructions(code) if each.opname in LOOKS_UP}
    return found.union(*(names_in(inner) for inner in code.co_consts if isinstance(inner, CodeType)))
