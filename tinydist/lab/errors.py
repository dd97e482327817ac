"""What is wrong with an answer that did not come to its end: what was raised, on which rank, at which line."""

import re

from ..simulator.call_sites import LIBRARIES, CallSite
from ..simulator.deadlock import DeadlockError
from ..simulator.matching import MismatchError
from ..simulator.supervisor import StuckError
from .limit import TooLong


class Wrong(Exception):
    """What is wrong with an answer, said to its author. ``picture()`` draws what shows it."""

    def __init__(self, text, picture=None):
        super().__init__(text)
        self.picture = picture


class Left(Exception):
    """A rank called sys.exit."""


def explain(error) -> Wrong:
    """An exception that an answer raised."""
    return Wrong(words(error))


def words(error):
    if isinstance(error, DeadlockError):
        return f"it hangs: the ranks wait for one another.\n{indented(str(error))}"
    if isinstance(error, MismatchError):
        return f"two ranks do not agree on what passes between them.\n{indented(str(error))}"
    if isinstance(error, StuckError):
        return f"{str(error).split(': it')[0]}. It sleeps, or waits for something that is no message."
    where = f"{rank_of(error)}{line_of(error.__cause__ if isinstance(error, Left) else error)}"
    if isinstance(error, TooLong):
        return f"it does not end: {where}\nIs there a loop whose condition never becomes false?"
    if isinstance(error, Left):
        return f"a rank ends by returning, but one called sys.exit: {where}"
    return f"{type(error).__name__}: {error}\n{where}" if str(error) else f"{type(error).__name__}, {where}"


def rank_of(error):
    notes = " ".join(getattr(error, "__notes__", ()))
    found = re.search(r"on (rank \d+) of \d+", notes)
    return f"{found[1]}, " if found else ""


def line_of(error):
    """The learner's last line on the way to the error."""
    link, last = error.__traceback__, None
    while link:
        if not link.tb_frame.f_code.co_filename.startswith(LIBRARIES):
            last = link
        link = link.tb_next
    if last is None:
        return "before its first line"
    site = CallSite(last.tb_frame)
    site.instruction = last.tb_lasti  # the frame may have gone on, in a `finally`
    return f"at {site}"


def indented(text):
    return "\n".join(f"  {line}" for line in text.splitlines())
