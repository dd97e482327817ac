"""What is said: lines of a terminal's width, or a page that wraps between words, on which what fails stands out."""

import re
from html import unescape

import IPython.display
import pytest

from tinydist.console.page import say
from tinydist.lab.errors import Wrong
from tinydist.lab.judging import Line, Verdict

REASON = "rank 0 sends too much: " + "a word and " * 20 + "<b>\n  an indented report, " + "as long as it is, " * 10
LINES = [Line("values", "ok", "x < 2"), Line("bytes", "wrong", "at most 8"), Line("memory", "-", "at most 9")]


class Exercise:
    name = "double"


TOLD = Verdict(Exercise, "wrong", LINES, Wrong(REASON)).told


@pytest.fixture
def shown(monkeypatch):
    """What a notebook is given to show."""
    shown = []
    monkeypatch.setattr("tinydist.console.page.in_notebook", lambda: True)
    monkeypatch.setattr(IPython.display, "display", lambda bundle, raw: shown.append(bundle))
    return shown


def test_a_page_says_the_same_as_a_terminal(shown, capsys, monkeypatch):
    say(*TOLD)
    monkeypatch.undo()
    say(*TOLD)
    (bundle,), printed = shown, capsys.readouterr().out
    on_page = unescape(re.sub("<[^>]*>", " ", bundle["text/html"]))
    assert on_page.split() == printed.split() == bundle["text/plain"].split()


def test_a_page_breaks_no_line_itself_and_lets_none_be_broken_inside_words(shown):
    say(*TOLD)
    html = shown[0]["text/html"]
    assert html.startswith("<pre style=") and "white-space: pre-wrap; word-break: normal" in html
    assert html.count("<div") == 1 + len(LINES) + 1 + len(REASON.splitlines())


def test_what_fails_stands_out_and_nothing_else(shown):
    say(*TOLD)
    (found,) = re.findall("<div style=[^>]*bold; color: [^>]*>([^<]*)</div>", shown[0]["text/html"])
    assert found.split() == ["bytes", "wrong", "at", "most", "8"]


def test_a_terminal_has_prose_filled_and_reports_as_they_are(capsys):
    say(*TOLD)
    *prose, report = capsys.readouterr().out.splitlines()
    assert max(map(len, prose)) <= 110 and report.startswith("  an indented report") and len(report) > 110


def test_an_empty_line_is_one(shown):
    say("\nNext")
    assert "<div><br></div><div>Next</div>" in shown[0]["text/html"]
