"""Finding a thing by its name. Whoever asks for an unknown one is told which there are."""


def look_up(what, known, name):
    """``known[name]``; a thing that is no string is taken to be found already."""
    if not isinstance(name, str):
        return name
    for each, found in known.items():
        if each.lower() == name.lower():
            return found
    raise ValueError(f"unknown {what} {name!r}: known are {', '.join(map(repr, known))}")
