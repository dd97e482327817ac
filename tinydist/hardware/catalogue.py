"""Finding a thing by its name. Whoever asks for an unknown one is told which there are."""

from ..rules import shown


def look_up(what, known, name):
    """``known[name]``; a thing of the same kind is found already."""
    for each, found in known.items():
        if isinstance(name, type(found)):
            return name
        if isinstance(name, str) and each.lower() == name.lower():
            return found
    raise ValueError(f"unknown {what} {shown(name)}: known are {', '.join(map(repr, known))}")
