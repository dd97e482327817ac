"""What a rank keeps of its cells: names, and how far its random numbers have come.

Simulated ranks have a room each in the kernel; a process has its own.
"""

import random
from contextlib import contextmanager
from dataclasses import dataclass

import cloudpickle
import numpy
import torch
import torch.distributed as dist

rooms = {}  # rank -> Room
session = None  # the cells for which they are


class Room:
    def __init__(self):
        self.names = {"__name__": "__main__"}
        self.drawn = None  # states of the random generators
        self.simulation = None  # of its last cell; None: a process's groups live as long as it

    @contextmanager
    def entered(self):
        """Its rank draws on where its last cell ended, and the groups that it has kept are of use."""
        earlier, self.simulation = self.simulation, getattr(dist.group.WORLD, "simulation", None)
        if earlier:
            self.simulation.go_on_from(earlier)
        if self.drawn:
            torch.set_rng_state(self.drawn[0]), random.setstate(self.drawn[1]), numpy.random.set_state(self.drawn[2])
        yield self.names
        self.drawn = torch.get_rng_state(), random.getstate(), numpy.random.get_state()


def enter(number, began):
    """The rank's names. Those of another session are forgotten."""
    global session
    if session != number:
        if began:
            raise RuntimeError("the processes that kept the ranks' variables have ended meanwhile: begin anew")
        rooms.clear()
        session = number
    return room_here().entered()


def room_here():
    return rooms.setdefault(dist.get_rank(), Room())


def names_here():
    return room_here().names


def key_here(key):
    return f"{key} of rank {dist.get_rank()}"


@dataclass
class Gone:
    """A variable that cannot be looked at."""

    why: str


def look(number, rank, name):
    """A variable of ``rank`` as bytes, where that is this process; or Gone."""
    if session != number or rank not in rooms:
        return Gone("its process has ended since, or another %%ranks cell has begun anew")
    try:
        return cloudpickle.dumps(rooms[rank].names[name])
    except Exception as error:  # whatever a library raises there; the ranks go on
        return Gone(f"it cannot be copied to the notebook ({error}). Print it in a %%ranks cell")
