"""The course in a folder of the reader's own: notebooks, exercises, solutions, from a clone or from the package."""

import shutil
from pathlib import Path

from .find import HOMES
from .whole_files import Trouble

FOLDERS = ("notebooks", "exercises", "solutions")
LEFT_OUT = shutil.ignore_patterns("progress.json", "__pycache__", ".ipynb_checkpoints")


def copy_course(folder):
    """Into a folder that has none of them yet."""
    folder = Path(folder)
    there = [name for name in FOLDERS if (folder / name).exists()]
    if there:
        raise Trouble(f"{folder / there[0]} is there already, and may be yours: name another folder")
    source = next(home for home in HOMES if (home / FOLDERS[-1]).is_dir())
    try:
        for name in FOLDERS:
            shutil.copytree(source / name, folder / name, ignore=LEFT_OUT)
    except OSError as error:
        raise Trouble(f"{folder} cannot be written ({error})") from None
    print(f"The course is in {folder}. There, `jupyter lab notebooks` opens it, and `tinydist` says how far you are.")
