"""The learner's progress, stored in ``progress.json`` in the folder ``exercises``.

    {"broadcast_in_parts": {"passed": true, "tries": 3, "hints": 1}}

The environment variable TINYDIST_PROGRESS names another file. Elsewhere (in solutions/, say) it lasts as long as the
process.
"""

import json
import os
from contextlib import contextmanager
from pathlib import Path

from ..console.command_name import command
from .atomic_files import Trouble, locked, set_aside, write_atomically

COPY = "course"  # of a clone, in it
NEW = {"passed": False, "tries": 0, "hints": 0}
_of_this_process = {}  # where no file is kept


class ProgressError(Trouble):
    """The file cannot be read or written."""


class DamagedProgress(ProgressError):
    """It is not what tinydist wrote."""


def folder():
    """The reader's folder of exercises: this one, one in this, or in the copy that `make lab` makes. None: neither."""
    here = Path.cwd()
    places = (here, here / COPY / "exercises", here / "exercises")
    return next((path for path in places if path.name == "exercises" and path.is_dir()), None)


def file():
    named = os.environ.get("TINYDIST_PROGRESS")
    if named:
        return Path(named)
    return folder() and folder() / "progress.json"


def load():
    """name -> {"passed", "tries", "hints"}."""
    path = file()
    if path is None:
        return _of_this_process
    try:
        progress = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except OSError as error:
        raise ProgressError(f"{path} cannot be read ({error.strerror})") from None
    except ValueError as error:
        raise damaged(path, error) from None
    if not (isinstance(progress, dict) and all(is_entry(entry) for entry in progress.values())):
        raise damaged(path, "it is not a table of exercises")
    return progress


def is_entry(entry):
    return isinstance(entry, dict) and all(type(entry.get(key)) is type(value) for key, value in NEW.items())


def damaged(path, why):
    return DamagedProgress(
        f"{path} cannot be read ({why}). Mend it, or begin anew with {command('reset', 'NAME')}, which sets it aside"
    )


@contextmanager
def changing():
    """Context: the progress of all exercises, locked for modification by this process."""
    path = file()
    if path is None:
        yield _of_this_process
        return
    with writing(path):
        progress = load()
        yield progress
        write_atomically(path, json.dumps(progress, indent=2) + "\n")


@contextmanager
def writing(path):
    try:
        with locked(path):
            yield
    except OSError as error:
        raise ProgressError(f"{path} cannot be written ({error.strerror or error})") from None


@contextmanager
def entry(name):
    """The same of one exercise."""
    with changing() as progress:
        yield progress.setdefault(name, dict(NEW))


def count_try(name, passed):
    with entry(name) as noted:
        noted["tries"] += 1
        noted["passed"] |= passed


def forget(name):
    """Its entry is gone. A damaged file is set aside: what it is called now, else None."""
    try:
        if name in load():
            with changing() as progress:
                progress.pop(name, None)
    except DamagedProgress:
        with writing(file()):
            return set_aside(file())
