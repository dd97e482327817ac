"""Which cells of a notebook are the reader's, and a new notebook with them in it.

Cells are known by their ids. A notebook of exercises remembers what was written, as a digest of each cell: one that
the reader has changed stays as it is, and so do those that he has added, and outputs of cells that say the same.
"""

import json
from hashlib import sha256

WRITTEN = "tinydist"  # in the metadata of a notebook: id of a cell -> digest of its text


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
    his = {cell.id for cell in old.cells if before.get(cell.id) != digest(cell.source)}
    previous = None
    for cell in old.cells:
        ids = [each.id for each in new.cells]
        if cell.id in ids:
            place = ids.index(cell.id)
            if cell.id in his or cell.source == new.cells[place].source:
                new.cells[place] = cell
        elif cell.id in his:
            new.cells.insert(ids.index(previous) + 1 if previous in ids else len(ids), cell)
        previous = cell.id
    return new, his
