"""The virtual clock: computes the timeline of a recorded run on a cluster.

Each rank has a compute stream, on which its operators run in order, and a stream for each group and for each rank that
it sends to. An operator takes its roofline time once it is launched: on an asynchronous device (Device.runs_ahead) the
CPU launches it while earlier ones still run. A transfer starts when its last rank has issued it and its stream is free;
each of its phases takes its latencies, and then the time of its bytes on the bottleneck of the links, ports and cards
that it occupies. Concurrent transfers share a resource equally. ``wait`` blocks the compute stream until the transfer
ends.

Events are taken in the order of virtual time, so the result depends on the record and the cluster alone.
"""

import heapq
from collections import Counter, defaultdict, deque
from itertools import count

from ..hardware.costs import kernel_time
from .event_log import EventLog, Spelled
from .ledger import StorageChange
from .memory_timeline import RankMemory
from .record import Issue, Operator, Wait
from .routes import Leg, leg, route
from .trace import Event, Trace


class Flow:
    """A transfer in flight. ``left`` is the remaining fraction of this phase's bytes."""

    def __init__(self, transfer, legs):
        self.transfer, self.legs = transfer, legs
        self.load = {}  # of this phase
        self.left = self.pace = self.since = 0.0  # pace: seconds for all of the phase's bytes, at the present share
        self.version = 0


class VirtualClock:
    """Simulation state: the progress of all ranks and transfers at a point in virtual time."""

    def __init__(self, programs, cluster):
        self.programs, self.cluster = programs, cluster
        self.spelled = Spelled()
        self.logs = [EventLog(rank, self.spelled) for rank in range(len(programs))]
        self.events = []
        self.calls = {}  # (transfer, rank) -> how the rank's events of it say in which scope, for what, since when
        self.time = [0.0] * len(programs)
        self.launched = [0.0] * len(programs)  # when the CPU of each rank has launched its last operator
        self.following = [0] * len(programs)  # the next entry of each program
        self.arrived = Counter()  # transfer -> how many have issued it
        self.started = []  # transfers
        self.ended = {}  # transfer -> when
        self.waiting = defaultdict(list)  # transfer -> ranks
        self.legs = {}  # of transfers that are alike
        self.queued = defaultdict(deque)  # stream -> flows, of which the first is under way
        self.holders = defaultdict(dict)  # resource -> flows that have bytes on it (a dict: ordered, and a set)
        self.agenda, self.order = [], count()  # (seconds, order, what to do, with what)

    def run(self):
        for rank in range(len(self.programs)):
            self.advance(rank)
        while self.agenda:
            now, _, act, arguments = heapq.heappop(self.agenda)
            act(now, *arguments)
        self.events.sort(key=lambda event: (event.rank, event.start, event.end, event.place, event.stream))
        for log, end in zip(self.logs, self.time, strict=True):
            log.close(end)
        memory = [RankMemory.of_changes(log.changes, log.rank, tuple(log.named)) for log in self.logs]
        wholes = {name: nbytes for log in self.logs for name, nbytes in log.wholes.items()}
        sent = {transfer: [leg.edges for leg in self.legs_of(transfer)] for transfer in self.started}
        return Trace(self.cluster, self.events, sent, memory, max(self.time), wholes)

    def at(self, seconds, act, *arguments):
        heapq.heappush(self.agenda, (seconds, next(self.order), act, arguments))

    # A rank.

    def advance(self, rank):
        """Advance a rank's program to the next wait that blocks."""
        program, now = self.programs[rank], self.time[rank]
        while self.following[rank] < len(program):
            place = self.following[rank]
            entry = program[place]
            if isinstance(entry, Operator):
                end, scope = self.end_of(entry, rank, now), self.spelled[entry.scope]
                if end is None:  # not known yet: contention.py
                    break
                self.events.append(Event(rank, "compute", entry.name, now, end, None, scope, "", now, place))
                now = end
            elif isinstance(entry, StorageChange):
                self.logs[rank].change(now, place, entry)
            elif isinstance(entry, Issue):
                scope, what = self.spelled[entry.scope], self.logs[rank].content_of(entry)
                self.calls[entry.transfer, rank] = scope, what, now, place
                self.at(now, self.arrive, entry.transfer)
            elif not isinstance(entry, Wait):
                self.logs[rank].add(now, place, entry)
            elif entry.transfer not in self.ended:
                self.waiting[entry.transfer].append(rank)
                break
            elif self.ended[entry.transfer] > now:
                end, scope = self.ended[entry.transfer], self.spelled[entry.scope]
                what = self.calls[entry.transfer, rank][1]
                self.events.append(Event(rank, "compute", "wait", now, end, entry.transfer, scope, what, now, place))
                now = end
            self.following[rank] += 1
        self.time[rank] = now

    def end_of(self, operator, rank, now):
        """Of an operator, if those before it end now."""
        if operator.seconds is not None:
            return now + operator.seconds
        return self.start_of(rank, now) + self.kernel(operator, self.cluster.device)

    def start_of(self, rank, now):
        """When the operator that the CPU launches next can start."""
        device = self.cluster.device
        cpu = self.launched[rank] if device.runs_ahead else now
        self.launched[rank] = cpu + device.launch_overhead
        return max(now, self.launched[rank])

    def kernel(self, operator, device):
        # Devices have no rates for integer or complex matmuls: only their bytes count.
        flops = operator.flops if getattr(operator.dtype, "is_floating_point", True) else 0
        return kernel_time(device, flops, operator.nbytes, operator.dtype, operator.product)

    # A transfer.

    def arrive(self, now, transfer):
        self.arrived[transfer] += 1
        if self.arrived[transfer] == transfer.awaited:
            flow = Flow(transfer, iter(self.legs_of(transfer)))
            queue = self.queued[transfer.stream]
            queue.append(flow)
            if len(queue) == 1:
                self.start(now, flow)

    def legs_of(self, transfer):
        """Programs repeat their collectives, and each is put on the cluster once."""
        if transfer.seconds is not None:
            return [Leg(transfer.seconds, {}, {})]
        nbytes = transfer.nbytes
        alike = transfer.name, transfer.ranks, transfer.root, tuple(nbytes.items()) if type(nbytes) is dict else nbytes
        if alike not in self.legs:
            phases = route(transfer, self.cluster.node_of)
            self.legs[alike] = [leg(phase, transfer.ranks, self.cluster) for phase in phases]
        return self.legs[alike]

    def start(self, now, flow):
        flow.start = now
        self.started.append(flow.transfer)
        self.next_phase(now, flow)

    def next_phase(self, now, flow):
        leg = next(flow.legs, None)
        if leg is None:
            self.end(now, flow)
            return
        flow.load = leg.load
        self.at(now + leg.latency, self.send, flow)

    def send(self, now, flow):
        """The latency phase has ended: start transferring the bytes."""
        flow.left, flow.pace, flow.since = 1.0, None, now
        for resource in flow.load:
            self.holders[resource][flow] = True
        self.share(now, flow)

    def share(self, now, changed):
        """``changed`` has started or ended: recompute the bandwidth shares of transfers that use the same resources."""
        flows = {changed: True} if changed.pace is None else {}
        for resource in changed.load:
            flows |= self.holders[resource]
        for flow in flows:
            seconds = [alone * len(self.holders[resource]) for resource, alone in flow.load.items()]
            pace = max(seconds, default=0.0)
            if pace != flow.pace:
                if flow.pace:
                    flow.left -= (now - flow.since) / flow.pace
                flow.pace, flow.since, flow.version = pace, now, flow.version + 1
                self.at(now + flow.left * pace, self.sent, flow, flow.version)

    def sent(self, now, flow, version):
        if version == flow.version:  # else its share has changed since
            for resource in flow.load:
                del self.holders[resource][flow]
            self.share(now, flow)
            self.next_phase(now, flow)

    def end(self, now, flow):
        transfer = flow.transfer
        self.ended[transfer] = now
        for rank in sorted(set(transfer.ranks)):
            call = self.calls.get((transfer, rank), ())  # of a rank that is not run, nothing is known
            self.events.append(Event(rank, transfer.stream, transfer.name, flow.start, now, transfer, *call))
        queue = self.queued[transfer.stream]
        queue.popleft()
        if queue:
            self.start(now, queue[0])
        for rank in self.waiting.pop(transfer, ()):
            self.advance(rank)
