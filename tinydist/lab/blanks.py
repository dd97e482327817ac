"""Blank markers in a solution's source, from which the learner's stub is generated; detects an unchanged stub.

# ? A question          begins a blank: the stub has the question, if there is one, and `raise NotImplementedError`
# -                     begins lines that the stub lacks
# .                     ends either; so does a line that is indented less
code  # = other code    the stub has the other line
"""

import ast
import inspect
import re
import textwrap

MARK = re.compile(r"( *)# ([?.-])(?: (.*))?$")
OTHER = "  # = "


def solution(text):
    """Without blanks."""
    lines = [line.split(OTHER)[0] for line in text.splitlines() if not MARK.match(line)]
    return "\n".join(lines)


def stub(text):
    lines, blank, empty = [], None, 0  # lines without text, since the last that has some
    for line in text.splitlines():
        mark = MARK.match(line)
        if blank and ((indent(line) < len(blank.indent) and line.strip()) or (mark and mark[2] == ".")):
            lines += blank.lines()
            blank = None
            lines += [""] * empty if lines[-1] else []
        if mark and mark[2] != ".":
            blank = blank or Blank(mark[1])
            blank.questions += [mark[3]] if mark[2] == "?" else []
        elif not mark and not blank:
            lines.append(line if OTHER not in line else " " * indent(line) + line.split(OTHER)[1])
        empty = 0 if line.strip() else empty + 1
    return "\n".join(lines + (blank.lines() if blank else [])).rstrip()


class Blank:
    def __init__(self, indent):
        self.indent, self.questions = indent, []

    def lines(self):
        questions = [f"{self.indent}# {question}" for question in self.questions if question]
        return questions + [f"{self.indent}raise NotImplementedError"] if self.questions else []


def indent(line):
    return len(line) - len(line.lstrip())


def edited(text, edits):
    """``edits``: old text, new text, old, new, ...; each old one must be there. ValueError if it is not. An old one may
    be (first, last): from the one to the other, both included."""
    for old, new in zip(edits[::2], edits[1::2], strict=True):
        old = old if isinstance(old, str) else span(text, *old)
        if old not in text:
            raise ValueError(f"there is no {old!r} in the solution, where a mistake changes it to {new!r}")
        text = text.replace(old, new)
    return text


def span(text, first, last):
    """All that stands from ``first`` to ``last``; where they are not there, both, for an error to show."""
    found = re.search(f"{re.escape(first)}.*?{re.escape(last)}", text, re.DOTALL)
    return found[0] if found else f"{first} ... {last}"


MISTAKEN = "mistaken"  # the module of a solution with mistakes put in, which is judged as an answer


def is_stub(answer, stub):
    """Does it say what the text ``stub`` says?

    Comments, blank lines and the docstring may differ: the syntax trees are compared. So it also holds for a stub that
    is a whole program with bugs in it. (Code objects would not do: Python compiles a call of an imported module's
    function in another way if the import stands in the same file.)
    """
    if getattr(answer, "__module__", None) == MISTAKEN:
        return False
    try:
        return body_of(inspect.getsource(answer)) == body_of(stub)
    except (OSError, TypeError, SyntaxError, ValueError):  # it has no text of its own: then it is not from a notebook
        return False


def body_of(text):
    (tree,) = ast.parse(textwrap.dedent(text)).body
    body = tree.body[1:] if ast.get_docstring(tree) is not None else tree.body
    return ast.dump(tree.args), [ast.dump(statement) for statement in body]
