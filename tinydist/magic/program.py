"""What a rank does with a cell."""

from .copies import unpacked
from .room import enter

RESULT = "_"  # the name of what the last line came to, as in Python's own prompt


def run_cell(session, began, packed, uncopied, body, last):
    """How the value of the last line is written (None: it has none), and the rank's names.

    ``began``: it has run a cell of this session before. ``uncopied``: names of the notebook -> why no rank has them.
    """
    with enter(session, began) as names:
        names.update(unpacked(packed))
        try:
            exec(body, names)
            value = eval(last, names) if last else None
        except NameError as error:
            if error.name in uncopied:
                error.add_note(f"The notebook has {error.name}, but each rank needs a copy: {uncopied[error.name]}")
            raise
        if value is None:
            return None, variables(names)
        names[RESULT] = value
        return repr(value), variables(names)


def variables(names):
    return [name for name in names if not name.startswith("__")]
