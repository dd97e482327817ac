"""What notebook 15 does with a script again and again: copy it, show a part of it, start it, mend it."""

import contextlib
import difflib
import io
import re
import shutil
import tempfile
from pathlib import Path

import tinydist
from tinydist.scripts.run_script import run_script

SCRIPT = Path("train.py")  # in the working directory


def fresh_copy(script):
    """A temporary folder with a copy of the script, and with 8,000 bytes of text."""
    folder = Path(tempfile.mkdtemp())
    shutil.copy(script, folder / SCRIPT)
    (folder / "text.txt").write_bytes(text()[:8000])
    return folder


def text():
    """The text on which the library's examples are trained."""
    return Path(tinydist.__file__).with_name("model").joinpath("text.txt").read_bytes()


def show(beginning):
    """Print the script from here to the next two empty lines."""
    source = SCRIPT.read_text()
    begin = source.index(beginning)
    end = source.index("\n\n\n", begin)
    print(source[begin:end])


def start(options="", ranks="--nproc-per-node 4"):
    """As ``tinydist run``: print what the script prints, or its error. Returns the run, or None after an error.

    Torch's warnings are left out, and so is the speed that the script prints: without GPUs it is this machine's.
    """
    printed = io.StringIO()
    run = None
    try:
        with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(io.StringIO()):
            run = run_script(f"{ranks} {SCRIPT} {options}")
    except RuntimeError as failure:
        line = failure.__notes__[-1]
        printed.write(f"{type(failure).__name__}: {failure}\n{line}\n")
    print(re.sub(r", [\d,]+ tokens/s", "", printed.getvalue()), end="")
    return run


def mend(before, after):
    """Replace lines of the script, and print the difference."""
    old = SCRIPT.read_text()
    if old.count(before) != 1:
        raise ValueError(f"the script has these lines {old.count(before)} times, and not once: {before!r}")
    new = old.replace(before, after)
    SCRIPT.write_text(new)
    difference = difflib.unified_diff(old.splitlines(), new.splitlines(), n=0, lineterm="")
    for line in list(difference)[2:]:  # without the names of the files
        print(line)
