"""Tested torch versions, and the message for other ones. Does not import torch, which may be missing."""

OLDEST, NEWEST = "2.12", "2.15"  # what differs between them is in torch_internals/
TESTED = f"tinydist is tested with torch {OLDEST} to {NEWEST}"
INSTALL = f"{TESTED}: install one of those, for example with `pip install torch==2.13.0`"


def release(version):
    """(2, 15) for "2.15.0+cu132": what can be expected of a version, whatever its patches and its build."""
    return tuple(int(part) for part in version.split(".")[:2])


def too_old(version):
    return release(version) < release(OLDEST)


def untested(version):
    return release(version) > release(NEWEST)
