"""Files shared with other processes: written atomically, under a lock, with backups of damaged ones."""

import hashlib
import os
import tempfile
from pathlib import Path

from filelock import FileLock

LOCK_TIMEOUT = 10.0  # seconds; a write takes some thousandths


class Trouble(RuntimeError):
    """With a file of the reader's. The command line says it, and ends."""


def locked(path):
    """Context: an exclusive lock on the file. Raises ``TimeoutError`` after some seconds."""
    name = hashlib.sha256(str(path.resolve()).encode()).hexdigest()[:16]
    return FileLock(Path(tempfile.gettempdir(), f"tinydist-{name}.lock"), timeout=LOCK_TIMEOUT)


def write_atomically(path, text):
    """Write atomically: concurrent readers see the old text or the new one. On OSError the old file remains
    unchanged."""
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
