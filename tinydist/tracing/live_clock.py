"""The virtual clock while ranks run: what time it is, as far as they have come.

Each reading goes on from the one before. A transfer that others have not joined has not ended; nor is it known yet whom
it will have to share a link with. So a reading is a preview: the trace of the whole run is computed once it has ended.
"""

from .clock import VirtualClock
from .lanes import Lane, stream_of
from .record import Operator
from .streams import MAIN, HostWait, StreamSwitch


class LiveClock(VirtualClock):
    """Of ``programs`` that still grow."""

    def __init__(self, programs, cluster):
        super().__init__([[] for _ in programs], cluster)
        self.programs = programs
        self.by_stream = [{MAIN: Lane(rank, "compute", [])} for rank in range(len(programs))]
        self.lanes = [list(lanes.values()) for lanes in self.by_stream]
        self.seen, self.streams = [0] * len(programs), [MAIN] * len(programs)
        self.cpu = [0.0] * len(programs)  # when the CPU of each rank has started its last operator, since it waited
        self.host_waits = [set() for _ in programs]  # places

    def now(self, rank):
        """Until when that rank's compute stream is busy: the time that a CPU reads which has waited for it."""
        for each in range(len(self.programs)):
            self._extend(each)
        blocked = {lane for lanes in self.waiting.values() for lane in lanes}
        for lane in [lane for lanes in self.lanes for lane in lanes if lane not in blocked]:
            self.advance(lane)
        self.act()
        return self.lanes[rank][0].time

    def time_of(self, signal, rank):
        """When a signal of that rank was given."""
        self.now(rank)
        return self.ended[signal]

    def _extend(self, rank):
        program, device = self.programs[rank], self.cluster.device
        for place in range(self.seen[rank], len(program)):
            entry = program[place]
            if isinstance(entry, StreamSwitch):
                self.streams[rank] = entry.stream
                continue
            if isinstance(entry, HostWait):
                self.host_waits[rank].add(place)
                lanes = self.lanes[rank]
            else:
                lanes = [self._lane(rank, stream_of(entry, self.streams[rank]))]
            if isinstance(entry, Operator) and entry.seconds is None:
                self.cpu[rank] += device.launch_overhead
            for lane in lanes:
                if device.runs_ahead:
                    lane.append(place, self.cpu[rank])
                else:
                    lane.places.append(place)
            if isinstance(entry, HostWait):
                self.cpu[rank] = 0.0
        self.seen[rank] = len(program)

    def _lane(self, rank, stream):
        lanes = self.by_stream[rank]
        if stream not in lanes:
            lanes[stream] = lanes[MAIN].beside(f"side stream {len(lanes)}", self.host_waits[rank])
            self.lanes[rank].append(lanes[stream])
        return lanes[stream]
