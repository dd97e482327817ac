"""Files that others may read and write too: written at once or not at all, by one at a time, and never thrown away."""

import hashlib
import os
import tempfile
from pathlib import Path

from filelock import FileLock

PATIENCE = 10.0  # seconds; whoever has the lock needs some thousandths


class Trouble(RuntimeError):
    """With a file of the reader's. The command line says it, and ends."""


def locked(path):
    """While this lasts, nobody else who asks has the file. TimeoutError after some seconds."""
    name = hashlib.sha256(str(path.resolve()).encode()).hexdigest()[:16]
    return FileLock(Path(tempfile.gettempdir(), f"tinydist-{name}.lock"), timeout=PATIENCE)


def write_whole(path, text):
    """Whoever reads the file meanwhile finds the old one. OSError: so does everybody, and nothing else is left."""
    if path.exists():
        path.open("r+").close()  # one that may not be written may be replaced: that is no good either
    descriptor, new = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with open(descriptor, "w", encoding="utf-8") as file:
            file.write(text)
        if path.exists():
            os.chmod(new, path.stat().st_mode)
        os.replace(new, path)
    except BaseException:
        os.unlink(new)
        raise


def set_aside(path):
    """Its new name."""
    return path.replace(path.with_name(f"{path.name}.damaged"))
