"""Blanks, marked in a solution: the text of the stub that a reader gets follows from it.

# ? A question          begins a blank: the stub has the question, if there is one, and `raise NotImplementedError`
# -                     begins lines that the stub lacks
# .                     ends either; so does a line that is indented less
code  # = other code    the stub has the other line
"""

import re

MARK = re.compile(r"( *)# ([?.-])(?: (.*))?$")
OTHER = "  # = "


def solution(text):
    """Without marks."""
    lines = [line.split(OTHER)[0] for line in text.splitlines() if not MARK.match(line)]
    return "\n".join(lines)


def stub(text):
    lines, blank, empty = [], None, 0  # lines without text, since the last that has some
    for line in text.splitlines():
        mark = MARK.match(line)
        if blank and ((indent(line) < len(blank.indent) and line.strip()) or (mark and mark[2] == ".")):
            lines += blank.lines()
            blank = None
            lines += [""] * empty
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
    """``edits``: old text, new text, old, new, ...; each old one must be there. ValueError if it is not."""
    for old, new in zip(edits[::2], edits[1::2], strict=True):
        if old not in text:
            raise ValueError(f"there is no {old!r} in the solution, where a mistake changes it to {new!r}")
        text = text.replace(old, new)
    return text
