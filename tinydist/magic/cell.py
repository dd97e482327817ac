"""A cell as a program: compiled so that errors name the cell and its own line."""

import ast
import dis
import linecache
import sys
from types import CodeType

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
