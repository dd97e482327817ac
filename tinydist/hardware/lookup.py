"""Look a preset up by its name; the error for an unknown name lists the known ones."""

from ..rules import shown


def look_up(what, known, name):
    """``known[name]``; an object of the same class is returned unchanged."""
    for each, found in known.items():
        if isinstance(name, type(found)):
            return name
        if isinstance(name, str) and each.lower() == name.lower():
            return found
    raise ValueError(f"unknown {what} {shown(name)}; available: {', '.join(map(repr, known))}")
