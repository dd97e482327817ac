"""The virtual clock: computes the timeline of a recorded run on a cluster.

Each rank has a compute stream, on which its operators run in order, a stream for each group and for each rank that it
sends to, and those that its program makes (streams.py, lanes.py). An operator takes its roofline time once it is
launched: on an asynchronous device (Device.runs_ahead) the CPU launches it while earlier ones still run. A transfer
starts when its last rank has issued it and its stream is free; each of its phases takes its latencies, and then the
time of its bytes on the bottleneck of the links, ports and cards that it occupies. A collective goes by NCCL's
algorithms where they are known (nccl_routes.py), or by rings and trees of messages (routes.py). Concurrent transfers
share a resource equally. ``wait`` blocks the stream that it is called on until the transfer ends; where the program
reads a number of the GPU, the CPU waits for its stream, and launches no further operator until then (HostWait).

Events are taken in the order of virtual time, so the result depends on the record and the cluster alone.
"""

import heapq
from collections import Counter, defaultdict, deque
from itertools import count

from ..hardware.costs import kernel_time
from .event_log import EventLog, Spelled
from .lanes import lanes_of
from .ledger import StorageChange
from .memory_timeline import RankMemory
from .nccl_routes import nccl_leg
from .record import Issue, Operator, Wait
from .routes import Leg, leg, route
from .streams import HostWait, Signal, StreamSwitch, StreamWait
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
        self.lanes = [lanes_of(rank, program, cluster.device) for rank, program in enumerate(programs)]
        self.kernel_seconds = {}  # operators that are alike, and a device -> the seconds of the kernel
        self.launched = [0.0] * len(programs)  # when the CPU of each rank has launched its last operator
        self.arrived = Counter()  # transfer -> how many have issued it
        self.started = []  # transfers
        self.ended = {}  # transfer or signal -> when
        self.behind = {}  # signal -> the transfer that its lane has waited for last
        self.waiting = defaultdict(list)  # transfer or signal -> lanes
        self.legs = {}  # of transfers that are alike
        self.queued = defaultdict(deque)  # stream -> flows, of which the first is under way
        self.holders = defaultdict(dict)  # resource -> flows that have bytes on it (a dict: ordered, and a set)
        self.agenda, self.order = [], count()  # (seconds, order, what to do, with what)

    def run(self):
        for lane in [lane for lanes in self.lanes for lane in lanes]:
            self.advance(lane)
        self.act()
        self.events.sort(key=lambda event: (event.rank, event.start, event.end, event.place, event.stream))
        ends = [max(lane.time for lane in lanes) for lanes in self.lanes]
        for log, end in zip(self.logs, ends, strict=True):
            log.close(end)
        memory = [RankMemory.of_changes(log.changes, log.rank, tuple(log.named)) for log in self.logs]
        wholes = {name: nbytes for log in self.logs for name, nbytes in log.wholes.items()}
        sent = {transfer: [leg.edges for leg in self.legs_of(transfer)] for transfer in self.started}
        return Trace(self.cluster, self.events, sent, memory, max(ends), wholes)

    def act(self):
        while self.agenda:
            now, _, act, arguments = heapq.heappop(self.agenda)
            act(now, *arguments)

    def at(self, seconds, act, *arguments):
        heapq.heappush(self.agenda, (seconds, next(self.order), act, arguments))

    # A rank.

    def advance(self, lane):
        """Advance one of a rank's lanes to the next wait that blocks."""
        rank, program, now = lane.rank, self.programs[lane.rank], lane.time
        while lane.following < len(lane.places):
            place = lane.places[lane.following]
            entry = program[place]
            if isinstance(entry, Operator):
                end, scope, own = self.end_of(entry, lane, now), self.spelled[entry.scope], self.own(entry)
                if end is None:  # not known yet: contention.py
                    break
                self.events.append(Event(rank, lane.name, entry.name, now, end, None, scope, "", now, place, own))
                now = end
            elif isinstance(entry, StorageChange):
                self.logs[rank].change(now, place, entry)
            elif isinstance(entry, Issue):
                scope, what = self.spelled[entry.scope], self.logs[rank].content_of(entry)
                self.calls[entry.transfer, rank] = scope, what, now, place
                self.at(now, self.arrive, entry.transfer)
            elif isinstance(entry, Signal):
                self.signal(now, lane, entry)
            elif isinstance(entry, (Wait, StreamWait, HostWait)):
                if entry.transfer not in self.ended:
                    self.waiting[entry.transfer].append(lane)
                    break
                now = self.awaited(now, place, lane, entry)
                if isinstance(entry, HostWait):
                    now = max(now, self.host_goes_on(lane, self.ended[entry.transfer]))
            elif not isinstance(entry, StreamSwitch):
                self.logs[rank].add(now, place, entry)
            lane.following += 1
        lane.time = now

    def signal(self, now, lane, signal):
        self.ended[signal], self.behind[signal] = now, lane.awaited
        for waiting in self.waiting.pop(signal, ()):
            self.at(now, self.resume, waiting)

    def resume(self, now, lane):
        self.advance(lane)

    def awaited(self, now, place, lane, entry):
        """What the entry waits for has ended; when its lane goes on."""
        end, transfer = self.ended[entry.transfer], self.behind.get(entry.transfer, entry.transfer)
        lane.awaited = transfer
        if end > now and lane.computes:
            scope, what = self.spelled[entry.scope], self.calls[transfer, lane.rank][1] if transfer else ""
            self.events.append(Event(lane.rank, "compute", "wait", now, end, transfer, scope, what, now, place))
        return max(now, end)

    def host_goes_on(self, lane, signal):
        """When, if it has waited for a signal of that time. Each lane of the rank finds the same."""
        if lane.launches:
            lane.host = max(lane.host + lane.launches[lane.following], signal)
            return lane.host
        self.launched[lane.rank] = max(self.launched[lane.rank], signal)
        return self.launched[lane.rank]

    def end_of(self, operator, lane, now):
        """Of an operator, if those before it end now."""
        if operator.seconds is not None:
            return now + operator.seconds
        return self.start_of(lane, now) + self.kernel(operator, self.cluster.device)

    def own(self, operator):
        """Seconds, if nothing else is waited for: of its launch and its kernel the longer, where the CPU runs ahead."""
        if operator.seconds is not None:
            return operator.seconds
        device = self.cluster.device
        parts = device.launch_overhead, self.kernel(operator, device)
        return max(parts) if device.runs_ahead else sum(parts)

    def start_of(self, lane, now):
        """When the operator that the CPU launches next can start."""
        if lane.launches:
            return max(now, lane.host + lane.launches[lane.following])
        device, rank = self.cluster.device, lane.rank
        cpu = self.launched[rank] if device.runs_ahead else now
        self.launched[rank] = cpu + device.launch_overhead
        return max(now, self.launched[rank])

    def kernel(self, operator, device):
        alike = operator.flops, operator.nbytes, operator.dtype, operator.product, id(device)
        if alike not in self.kernel_seconds:
            # Devices have no rates for integer or complex matmuls: only their bytes count.
            flops = operator.flops if getattr(operator.dtype, "is_floating_point", True) else 0
            self.kernel_seconds[alike] = kernel_time(device, flops, operator.nbytes, operator.dtype, operator.product)
        return self.kernel_seconds[alike]

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
            by_nccl = nccl_leg(transfer, self.cluster)
            phases = [] if by_nccl else route(transfer, self.cluster.node_of)
            legs = [leg(phase, transfer.ranks, self.cluster) for phase in phases]
            self.legs[alike] = [by_nccl] if by_nccl else legs
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
        for lane in self.waiting.pop(transfer, ()):
            self.advance(lane)
