"""Copies the course (notebooks, exercises, solutions) into the learner's folder, and updates such a copy.

An update replaces unedited cells, even if they were run, and keeps and reports edited ones. A record of digests of the
copied cells tells which is which.
"""

import errno
import json
import os
import stat
from contextlib import suppress
from hashlib import sha256
from pathlib import Path

import nbformat

from ..console.command_name import command
from .atomic_files import Trouble, locked, write_atomically
from .registry import HOMES, PACKAGE

FOLDERS = ("notebooks", "exercises", "solutions")
BESIDE = (".py", ".lock", ".toml", ".txt", ".yml")  # programs that notebooks run, lock files that they read
KINDS = (".ipynb", ".csv")  # not the files of exercises: a check reads the package's, which are never old
LINKED = ("examples", "tests")  # besides the package: where links of notebooks lead
PROGRESS = "exercises/progress.json"
WRITTEN = "tinydist"  # in the metadata of a notebook: id of a cell -> digest of its text
RECORD = ".tinydist.json"  # name of a file -> what was copied


def copy_course(folder):
    """Into a folder that has none, or an older one."""
    if not str(folder):
        raise Trouble("the folder has an empty name: `.` is the one that you are in")
    home, folder = next(home for home in HOMES if (home / FOLDERS[-1]).is_dir()), Path(folder)
    if folder.resolve() == home:
        raise Trouble(f"{folder} is the source of the course: choose another folder")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with locked(folder / RECORD):
            Copy(home, folder).refresh()
    except OSError as error:
        again = "make room and do this again, or " * (error.errno == errno.ENOSPC)
        raise Trouble(f"{folder} cannot be written ({error.strerror or error}): {again}choose another folder") from None


class Copy:
    """``record``: name of a file -> digests of what was copied: of the texts of its cells, and of the whole file."""

    def __init__(self, home, folder):
        self.home, self.folder, self.record, self.fresh = home, folder, {}, 0
        self.begun = (folder / RECORD).exists()
        with suppress(FileNotFoundError, ValueError):  # without it, what differs from the new files is the reader's
            self.record = dict(json.loads((folder / RECORD).read_text(encoding="utf-8")))

    def refresh(self):
        for target in (PACKAGE, *(self.home / name for name in LINKED)):
            link(self.folder, target)
        new = {name: (self.home / name).read_bytes() for name in names_in(self.home)}
        for name, data in new.items():
            known = self.record.setdefault(name, {"cells": []})["cells"]
            known += {texts(written(data))} - set(known)
        self.save()  # first of all: if this breaks off, what was copied is not taken for the reader's
        for name, data in new.items():
            self.bring(name, data)
        for name in self.record.keys() - new:
            self.retire(name)
        self.save()
        if (self.home / PROGRESS).exists() and not (self.folder / PROGRESS).exists():
            self.put(PROGRESS, (self.home / PROGRESS).read_bytes())  # of a reader who began before there was a copy
        if not self.begun:
            print(f"The course is in {self.folder}, yours to write in. There, `jupyter lab` opens it.")
        elif self.fresh:
            print(f"In {self.folder}, {self.fresh} file{'s are' if self.fresh > 1 else ' is'} new.")

    def save(self):
        write_atomically(self.folder / RECORD, json.dumps(self.record, indent=1) + "\n")

    def bring(self, name, new):
        there, before, file = self.folder / name, self.record[name], digest(new)
        if not there.exists() or self.says(there, before["cells"]):
            if not there.exists() or before.get("file") != file:
                self.put(name, new)
            self.record[name] = {"cells": [texts(written(new))], "file": file}
        elif file not in (before.get("file"), before.get("told")):
            took = self.merge(name, new)
            self.record[name] = {**before, "file" if took else "told": file}
            if not took:
                print(f"{there} stays: you have changed it. To take the new one, delete it, and do this again.")

    def retire(self, name):
        there, before = self.folder / name, self.record.pop(name)
        if there.exists() and self.says(there, before["cells"]):
            there.unlink()
        elif there.exists():
            print(f"{there} stays: you have changed it. The course goes on without it.")

    def says(self, there, those):
        """The file: what was copied."""
        return texts(cells(there.read_bytes())) in those

    def merge(self, name, new):
        """Exercises become new around what the reader has written. False: the file is none."""
        try:
            old = nbformat.read(self.folder / name, as_version=4)
            if WRITTEN not in old.metadata:
                return False
            notebook, own = merged(nbformat.reads(new.decode(), as_version=4), old)
        except Exception:  # what a damaged file makes nbformat stumble over
            return False
        self.put(name, (nbformat.writes(notebook) + "\n").encode())
        for answer in [tag for cell in notebook.cells if cell.id in own for tag in cell.metadata.get("tags", [])]:
            print(f"{self.folder / name} is new, but for your {answer}: `{command('reset', answer)}` takes its stub.")
        return True

    def put(self, name, data):
        there = self.folder / name
        there.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(there, data.decode())
        there.chmod((self.home / name).stat().st_mode | stat.S_IWUSR)  # that of the package may be read only
        self.fresh += 1


def texts(cells):
    return digest(json.dumps(cells, sort_keys=True))


def names_in(home):
    for folder in FOLDERS:
        kinds = (*KINDS, *BESIDE) if folder == FOLDERS[0] else KINDS
        for path in sorted((home / folder).rglob("*")):
            if path.suffix in kinds and ".ipynb_checkpoints" not in path.parts:
                yield path.relative_to(home).as_posix()


def link(folder, target):
    """If Windows does not allow symlinks, the notebooks' links to the library are broken."""
    place = folder / target.name
    if target.is_dir() and place.resolve() != target and (place.is_symlink() or not place.exists()):
        with suppress(OSError):
            place.unlink(missing_ok=True)
            place.symlink_to(os.path.relpath(target, folder.resolve()), target_is_directory=True)


# Which cells of a notebook are the reader's. Cells are known by their ids. A notebook of exercises remembers what was
# written, as a digest of each cell: one that the learner has edited stays as it is, and so do added cells, and outputs
# of unchanged cells.


def digest(text):
    return sha256(text.encode() if isinstance(text, str) else text).hexdigest()[:12]


def cells(data):
    """id -> digest of the text. What is no notebook is one cell."""
    try:
        found = json.loads(data)["cells"]
        return {cell.get("id", str(place)): digest("".join(cell["source"])) for place, cell in enumerate(found)}
    except (ValueError, LookupError, TypeError, AttributeError):
        return {"": digest(data)}


def written(data):
    """The same, before anybody answered it."""
    try:
        return dict(json.loads(data)["metadata"][WRITTEN])
    except (ValueError, LookupError, TypeError):
        return cells(data)


def merged(new, old):
    """``new``, with what is the reader's in ``old``, and the ids of those cells."""
    before = old.metadata[WRITTEN]
    own = {cell.id for cell in old.cells if before.get(cell.id) != digest(cell.source)}
    previous = None
    for cell in old.cells:
        ids = [each.id for each in new.cells]
        if cell.id in ids:
            place = ids.index(cell.id)
            if cell.id in own or cell.source == new.cells[place].source:
                new.cells[place] = cell
        elif cell.id in own:
            new.cells.insert(ids.index(previous) + 1 if previous in ids else len(ids), cell)
        previous = cell.id
    return new, own
