"""What the lab says: lines in a terminal; in a notebook a page, which wraps them at its own width."""

import textwrap
from html import escape

from ..console.waiting import in_notebook

TERMINAL = 110  # characters
PAGE = "margin: 0; white-space: pre-wrap; word-break: normal; overflow-wrap: anywhere"


def say(*told):
    """Each is a text, or a line that knows how it looks on a page: ``html()``."""
    if in_notebook():
        from IPython.display import display  # it is there: the notebook's own

        display({"text/plain": plain(told), "text/html": page(told)}, raw=True)
    else:
        print(plain(told))


def plain(told):
    return "\n".join(filled(str(each)) for each in told)


def filled(text):
    """Lines of prose, filled; indented ones (reports, code) stay as they are."""
    return "\n".join(line if line.startswith(" ") else textwrap.fill(line, TERMINAL) for line in text.splitlines())


def page(told):
    return f'<pre style="{PAGE}">{"".join(division(each) for each in told)}</pre>'


def division(told):
    if isinstance(told, str):
        return "".join(f"<div>{escape(line) or '<br>'}</div>" for line in told.split("\n"))
    return told.html()
