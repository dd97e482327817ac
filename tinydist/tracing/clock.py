"""Virtual time: the record of a run, put on a cluster.

Each rank has a compute stream, on which its operators run one after another, and a stream for each group and for each
rank that it sends to. An operator takes what the roofline says, once it is launched: on a device that runs ahead
(Device.runs_ahead) the CPU launches it while those before still run. A transfer starts when its last rank has issued
it and its stream is free; each of its phases takes its latencies, and then the bytes on the busiest of the links, ports
and cards that it holds. Transfers that hold the same thing at the same time have equal shares of it. ``wait`` moves the
compute stream to the transfer's end.

Events are taken in the order of virtual time, so the result depends on the record and the cluster alone.
"""

import heapq
from collections import Counter, defaultdict, deque
from itertools import count

from ..hardware.costs import kernel_seconds
from .chronicle import Chronicle, Spelled
from .held import RankMemory
from .memory import Memory
from .record import Issue, Operator, Wait
from .routes import Leg, leg, route
from .trace import Event, Trace


class Flow:
    """A transfer under way. ``left`` is the part of this phase's bytes that is still to come."""

    def __init__(self, transfer, legs):
        self.transfer, self.legs = transfer, legs
        self.load = {}  # of this phase
        self.left = self.pace = self.since = 0.0  # pace: seconds for all of the phase's bytes, at the present share
        self.version = 0


class Clock:
    """Where all ranks and transfers stand at one moment of virtual time."""

    def __init__(self, programs, cluster):
        self.programs, self.cluster = programs, cluster
        self.spelled = Spelled()
        self.chronicles = [Chronicle(rank, self.spelled) for rank in range(len(programs))]
        self.events = []
        self.calls = {}  # (transfer, rank) -> how the rank's events of it say where, for what, since when
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
        for chronicle, end in zip(self.chronicles, self.time, strict=True):
            chronicle.close(end)
        memory = [RankMemory.of_changes(told.changes, told.rank, tuple(told.named)) for told in self.chronicles]
        wholes = {name: nbytes for told in self.chronicles for name, nbytes in told.wholes.items()}
        sent = {transfer: [leg.edges for leg in self.legs_of(transfer)] for transfer in self.started}
        return Trace(self.cluster, self.events, sent, memory, max(self.time), wholes)

    def at(self, seconds, act, *arguments):
        heapq.heappush(self.agenda, (seconds, next(self.order), act, arguments))

    # A rank.

    def advance(self, rank):
        """Follow a rank's program up to a wait that cannot end yet."""
        program, now = self.programs[rank], self.time[rank]
        while self.following[rank] < len(program):
            place = self.following[rank]
            entry = program[place]
            if isinstance(entry, Operator):
                end, where = self.end_of(entry, rank, now), self.spelled[entry.where]
                if end is None:  # nobody knows yet: contention.py
                    break
                self.events.append(Event(rank, "compute", entry.name, now, end, None, where, "", now, place))
                now = end
            elif isinstance(entry, Memory):
                self.chronicles[rank].change(now, place, entry)
            elif isinstance(entry, Issue):
                where, what = self.spelled[entry.where], self.chronicles[rank].aim(entry)
                self.calls[entry.transfer, rank] = where, what, now, place
                self.at(now, self.arrive, entry.transfer)
            elif not isinstance(entry, Wait):
                self.chronicles[rank].note(now, place, entry)
            elif entry.transfer not in self.ended:
                self.waiting[entry.transfer].append(rank)
                break
            elif self.ended[entry.transfer] > now:
                end, where = self.ended[entry.transfer], self.spelled[entry.where]
                what = self.calls[entry.transfer, rank][1]
                self.events.append(Event(rank, "compute", "wait", now, end, entry.transfer, where, what, now, place))
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
        # Devices have no rates for products of whole or complex numbers: only their bytes count.
        flops = operator.flops if getattr(operator.dtype, "is_floating_point", True) else 0
        return kernel_seconds(device, flops, operator.nbytes, operator.dtype, operator.product)

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
        """The latencies are over: the bytes pass."""
        flow.left, flow.pace, flow.since = 1.0, None, now
        for resource in flow.load:
            self.holders[resource][flow] = True
        self.share(now, flow)

    def share(self, now, changed):
        """``changed`` has come or gone: it and those that hold the same things have new shares."""
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
