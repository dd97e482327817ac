"""What a rank's CPU queues on each stream of its GPU, in order: the clock runs these lanes beside one another.

    program    gather 0 | wait | layer 0 | gather 1 | wait | layer 1      all in the order of the CPU
    gathering  gather 0 | wait | gather 1 | wait                          gather 1 does not wait for layer 0,
    compute    . . . . . . . . . | layer 0      | layer 1                 which waits for the signal behind gather 0

The CPU runs ahead: it starts operators in the order of the program, and no wait of a stream holds it up. It waits
itself where the program reads a number of the GPU (``HostWait``): such an entry is in all lanes, since what follows is
launched after it. A device whose CPU does not run ahead has one lane, in which signals and the waits for them take no
time.
"""

from .record import Issue, Operator, Wait
from .streams import MAIN, HostWait, Signal, StreamSwitch, StreamWait

ON_STREAM = Operator, Issue, Wait


class Lane:
    """``name``: of the stream. ``places``: of its entries in the rank's record."""

    def __init__(self, rank, name, places):
        self.rank, self.name, self.places = rank, name, places
        self.launches = []  # beside places: when the CPU has started that entry; none if this is the only lane
        self.host = 0.0  # since when: until then the CPU has waited
        self.following, self.time = 0, 0.0  # the next of places; until when it has run
        self.awaited = None  # the transfer that it has waited for last

    @property
    def computes(self):
        return self.name == "compute"

    def append(self, place, launch):
        self.places.append(place)
        self.launches.append(launch)

    def beside(self, name, places):
        """A new lane of the rank, with the waits of its CPU until now, which are at these places."""
        lane = Lane(self.rank, name, [])
        for place, launch in zip(self.places, self.launches, strict=False):  # no launches if the CPU does not run ahead
            if place in places:
                lane.append(place, launch)
        return lane


def lanes_of(rank, program, device):
    """The first is the one that computes, and has the marks, regions and changes of memory."""
    if not device.runs_ahead or not any(type(entry) is StreamSwitch for entry in program):
        return [Lane(rank, "compute", range(len(program)))]
    lanes, stream, launched, waits = {MAIN: Lane(rank, "compute", [])}, MAIN, 0.0, set()
    for place, entry in enumerate(program):
        if isinstance(entry, StreamSwitch):
            stream = entry.stream
            continue
        if isinstance(entry, HostWait):
            for lane in lanes.values():
                lane.append(place, launched)
            launched = 0.0
            waits.add(place)
            continue
        if isinstance(entry, Operator) and entry.seconds is None:
            launched += device.launch_overhead
        mine = stream_of(entry, stream)
        if mine not in lanes:
            lanes[mine] = lanes[MAIN].beside(f"side stream {len(lanes)}", waits)
        lanes[mine].append(place, launched)
    return list(lanes.values())


def stream_of(entry, current):
    """The stream of an entry, if it stands where ``current`` is the current one."""
    if isinstance(entry, (Signal, StreamWait)):
        return entry.stream
    return current if isinstance(entry, ON_STREAM) else MAIN
