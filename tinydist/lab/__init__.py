"""The exercises: tasks, checks (values, communication, costs) and hints.

An exercise is one file in solutions/; author.py has what it is written with. A check (judging.py) runs the answer and
the solution in the same cases and compares them (target.py).
"""

__all__ = ["check", "hint", "judge"]


def __getattr__(name):
    """The commands that list exercises are there without torch, and without these."""
    if name not in __all__:
        raise AttributeError(f"tinydist.lab has no {name}")
    from . import reader

    return getattr(reader, name)
