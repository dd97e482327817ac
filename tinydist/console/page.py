"""What is said to the reader: lines in a terminal, HTML in a notebook."""

import textwrap
from html import escape

from .progress_message import in_notebook

TERMINAL = 110  # characters
PAGE = "margin: 0; white-space: pre-wrap; word-break: normal; overflow-wrap: anywhere"


class Styled(str):
    """A line with a CSS style of its own, in a notebook."""

    def __new__(cls, text, style):
        line = super().__new__(cls, text)
        line.style = style
        return line


def say(*told):
    if in_notebook():
        from IPython.display import display  # it is there: the notebook's own

        display({"text/plain": plain(told), "text/html": page(told)}, raw=True)
    else:
        print(plain(told))


def plain(told):
    return "\n".join(map(filled, told))


def filled(text):
    """Lines of prose, filled; indented ones (reports, code) stay as they are."""
    return "\n".join(line if line.startswith(" ") else textwrap.fill(line, TERMINAL) for line in text.splitlines())


def page(told):
    return f'<pre style="{PAGE}">{"".join(map(division, told))}</pre>'


def division(text):
    if isinstance(text, Styled):
        return f'<div style="{text.style}">{escape(text)}</div>'
    return "".join(f"<div>{escape(line) or '<br>'}</div>" for line in text.split("\n"))
