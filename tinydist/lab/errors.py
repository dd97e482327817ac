"""Explains why an answer failed: the exception, its rank and its line."""

import re
from textwrap import indent
from traceback import walk_tb

from ..simulator.call_sites import site_of_traceback
from ..simulator.deadlock import DeadlockError
from ..simulator.matching import MismatchError
from ..simulator.stuck import StuckError
from .tracer import TooLong

BATCH = ("batch_isend_irecv", "_check_p2p_op_list")  # of torch.distributed
BACKWARD = "_engine_run_backward"  # of torch.autograd: what it calls need not be a line of the learner's
NO_SIZE = ("concrete integers", "negative dimension", "calculation overflowed")  # what torch says of one
UNWRITTEN = "No tensor has such a size. Is it read from a tensor that a message fills, before wait()?"
UNKNOWN = "The first cell of the notebook has the imports: was it run?"
LOOP = "Is there a loop whose condition never becomes false, or one that takes too many turns?"
EMPTY_BATCH = "batch_isend_irecv takes no empty list: on 1 rank there is nobody to talk to."


class Wrong(Exception):
    """What is wrong with an answer, said to its author. ``picture()`` draws what shows it."""

    def __init__(self, text, picture=None):
        super().__init__(text)
        self.picture = picture


class Unjudged(Exception):
    """Nothing is wrong so far, and what would show whether it holds was not run: something else is wrong."""


class Left(Exception):
    """A rank called sys.exit."""


def explain(error) -> Wrong:
    """An exception that an answer raised."""
    return Wrong(words(error))


def words(error):
    if isinstance(error, Wrong):  # found on a rank, by what the exercise does there
        return str(error)
    if isinstance(error, DeadlockError):
        return f"it hangs: the ranks wait for one another.\n{indent(str(error), '  ')}"
    if isinstance(error, MismatchError):
        return f"two ranks do not agree on what passes between them.\n{indent(str(error), '  ')}"
    if isinstance(error, StuckError):
        return (
            f"rank {error.rank} does nothing for {error.seconds:g} s. It sleeps, or waits for something that is no "
            f"message, at {error.site}"
        )
    where = f"{rank_of(error)}{line_of(error.__cause__ if isinstance(error, Left) else error)}"
    if isinstance(error, TooLong) and error.__traceback__ is None:
        return f"{error}, and its `except:` catches what should stop it: name the exceptions that you expect"
    if isinstance(error, TooLong):
        return f"{error}: {where}\n{LOOP}"
    if isinstance(error, Left):
        return f"a rank ends by returning, but one called sys.exit: {where}"
    text = f"{type(error).__name__}: {error}\n{where}" if str(error) else f"{type(error).__name__}, {where}"
    if of_empty_batch(error):
        return f"{text}\n{EMPTY_BATCH}"
    if type(error) is NameError:
        return f"{text}\n{UNKNOWN}"
    if isinstance(error, RuntimeError) and any(said in str(error) for said in NO_SIZE):
        return f"{text}\n{UNWRITTEN}"
    return text


def of_empty_batch(error):
    """torch does not say it: it looks at the first of the list."""
    return isinstance(error, IndexError) and functions_of(error)[-1] in BATCH


def functions_of(error):
    """On the way to it."""
    return [frame.f_code.co_name for frame, _ in walk_tb(error.__traceback__)]


def rank_of(error):
    notes = " ".join(getattr(error, "__notes__", None) or ())
    found = re.search(r"on (rank \d+) of (?!1\b)", notes)  # where there are others
    return f"{found[1]}, " if found else ""


def line_of(error):
    """The learner's last line on the way to the error."""
    site = site_of_traceback(error.__traceback__)
    if site is None:
        return "in backward, called by autograd" if BACKWARD in functions_of(error) else "before its first line"
    return f"at {site}"


def listed(things):
    *most, last = map(str, things)
    return f"{', '.join(most)} and {last}" if most else last
