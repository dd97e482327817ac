"""The `simulated` process group: the methods of torch.distributed's ProcessGroup, as meetings of ranks.

Each collective says which of its tensors must be alike on all ranks, which take part, and what moves once all ranks
are there (transfer.py). Ranks and roots are those of the group, as torch.distributed passes them.
"""

from contextlib import nullcontext
from itertools import count

import torch
import torch.distributed as dist
from torch.distributed import ReduceOp

from . import transfer
from .arguments import check_count, check_pieces, check_plain, check_splits, cut, reduction_of, split
from .call_sites import here
from .matching import Call, Message, Signature, ranks_in_words
from .names import region
from .scheduler import TimedOut
from .stored import tensors_in
from .torch_internals import graph_task, native_code_calls, unobserved
from .work import DONE, NO_TIME, SimulatedWork, Works, seconds


def _outside(*_):
    raise RuntimeError("the backend 'simulated' lives inside tinydist.launch(fn, ranks=...): start the ranks with it")


dist.Backend.register_backend("simulated", _outside, devices=["cpu"])


class Asynchronous:
    """The options of a call that passes none."""

    asyncOp, reduceOp, rootRank = True, ReduceOp(ReduceOp.SUM), 0


class SimulatedProcessGroup(dist.ProcessGroup):
    """One rank's handle on a ``matching.Group``. ``index`` is its rank in the group."""

    def __init__(self, simulation, group, index):
        super().__init__(index, len(group.ranks))
        self.simulation, self.scheduler, self.group = simulation, simulation.scheduler, group
        self.index, self.count, self.owner = index, len(group.ranks), group.ranks[index]
        self.description = "undefined"
        self.patience = None  # seconds that a wait may take, where the program has chosen them
        self.coalesced = None  # the works since _start_coalescing
        self.buckets = None, None  # a backward under way, and a count of what torch's DDP has reduced in it

    def __repr__(self):  # as torch says which group it does not know
        ended = ", whose run has ended" if self.scheduler.running is None else ""
        return f"<simulated group of {ranks_in_words(self.group.ranks)}{ended}>"

    # Collectives over whole tensors.

    def allreduce(self, tensors, opts=Asynchronous):
        with self._bucket(tensors) if native_code_calls() else nullcontext():
            return self._meet("all_reduce", transfer.all_reduce, tensors, tensors, tensors, opts, reduces=True)

    def _bucket(self, tensors):
        """Torch's DDP reduces its buckets in their order, and of whole numbers which parameters were used."""
        task = graph_task()
        if self.buckets[0] != task:
            self.buckets = task, count()
        return region(f"bucket {next(self.buckets[1])}" if tensors[0].is_floating_point() else "used parameters")

    def reduce(self, tensors, opts=Asynchronous):
        return self._meet("reduce", transfer.reduce, tensors, tensors, tensors, opts, reduces=True, root=opts.rootRank)

    def broadcast(self, tensors, opts=Asynchronous):
        return self._meet("broadcast", transfer.broadcast, tensors, tensors, tensors, opts, root=opts.rootRank)

    def barrier(self, opts=Asynchronous):
        return self._meet("barrier", lambda calls: None, [], [], [], opts)

    def monitored_barrier(self, timeout=None, wait_all_ranks=False):
        if timeout == NO_TIME:
            raise RuntimeError(f"Rank {self.index} timed out in monitoredBarrier after 0 ms")
        work = self._meet("monitored_barrier", lambda calls: None, [], [], [], Asynchronous)
        try:
            work.wait(timeout)
        except TimedOut as error:
            raise RuntimeError(self._who_failed(work.event, timeout, wait_all_ranks)) from error

    def _who_failed(self, barrier, timeout, wait_all_ranks):
        """In gloo's words: its rank 0 waits for each of the others, and tells them."""
        if self.index != 0:
            return (
                f"Rank {self.index} successfully reached monitoredBarrier, but received errors while waiting for "
                "send/recv from rank 0"
            )
        absent = [str(index) for index in range(self.count) if index not in barrier.calls]
        who = f"Ranks {', '.join(absent)}" if wait_all_ranks else f"Rank {absent[0]}"
        return f"{who} failed to pass monitoredBarrier in {seconds(timeout) * 1e3:.0f} ms"

    # Collectives over one piece for each rank.

    def allgather(self, outputs, inputs, opts=Asynchronous):
        for pieces, tensor in zip(outputs, inputs, strict=True):
            check_pieces(self, "all_gather", "output", pieces, tensor)
        return self._meet("all_gather", transfer.all_gather, inputs, inputs, outputs, opts)

    def gather(self, outputs, inputs, opts=Asynchronous):
        for pieces in outputs:
            check_pieces(self, "gather", "gather_list", pieces, inputs[0])
        return self._meet("gather", transfer.gather, inputs, inputs, outputs, opts, root=opts.rootRank)

    def scatter(self, outputs, inputs, opts=Asynchronous):
        for pieces in inputs:
            check_pieces(self, "scatter", "scatter_list", pieces, outputs[0])
        return self._meet("scatter", transfer.scatter, outputs, inputs, outputs, opts, root=opts.rootRank)

    def reduce_scatter(self, outputs, inputs, opts=Asynchronous):
        for pieces, tensor in zip(inputs, outputs, strict=True):
            check_pieces(self, "reduce_scatter", "input", pieces, tensor)
        return self._meet("reduce_scatter", transfer.reduce_scatter, outputs, inputs, outputs, opts, reduces=True)

    def alltoall(self, outputs, inputs, opts=Asynchronous):
        for what, tensors in (("output", outputs), ("input", inputs)):
            check_count(self, "all_to_all", what, tensors)
        return self._meet("all_to_all", self._all_to_all, [], inputs, outputs, opts)

    # The same over one tensor, cut in pieces.

    def all_gather_single_coalesced(self, outputs, inputs, opts=Asynchronous):
        pieces = [cut(self, "all_gather", "output", o, i) for o, i in zip(outputs, inputs, strict=True)]
        flat = [tensor.reshape(-1) for tensor in inputs]
        return self._meet("all_gather", transfer.all_gather, inputs, flat, pieces, opts, written=outputs)

    def reduce_scatter_single_coalesced(self, outputs, inputs, opts=Asynchronous):
        pieces = [cut(self, "reduce_scatter", "input", i, o) for o, i in zip(outputs, inputs, strict=True)]
        flat = [tensor.view(-1) for tensor in outputs]
        return self._meet(
            "reduce_scatter", transfer.reduce_scatter, outputs, pieces, flat, opts, reduces=True, written=outputs
        )

    def all_to_all_single(self, output, input, output_splits=(), input_splits=(), opts=Asynchronous):
        outputs = split(self, "output", output.data, output_splits)  # .data: see transfer.put
        inputs = split(self, "input", input, input_splits)
        return self._meet("all_to_all", self._all_to_all, [], inputs, outputs, opts, written=[output])

    def all_gather_single(self, output, input, opts=Asynchronous):
        return self.all_gather_single_coalesced([output], [input], opts)

    def reduce_scatter_single(self, output, input, opts=Asynchronous):
        return self.reduce_scatter_single_coalesced([output], [input], opts)

    def allgather_coalesced(self, outputs, inputs, opts=Asynchronous):
        return self.allgather(list(zip(*outputs, strict=True)), inputs, opts)

    def _allgather_base(self, *arguments):  # how torch 2.12 calls it; an exercise may have replaced the handle's method
        return self.all_gather_single(*arguments)

    def _reduce_scatter_base(self, *arguments):
        return self.reduce_scatter_single(*arguments)

    allreduce_coalesced = allreduce
    allgather_into_tensor_coalesced = all_gather_single_coalesced
    reduce_scatter_tensor_coalesced = reduce_scatter_single_coalesced
    alltoall_base = all_to_all_single

    # Messages.

    def send(self, tensors, peer, tag=0):
        return self._post("send", tensors, peer, tag)

    def recv(self, tensors, peer, tag=0):
        return self._post("recv", tensors, peer, tag)

    def recv_anysource(self, tensors, tag=0):
        return self._post("recv", tensors, None, tag)

    # How calls meet.

    def _meet(self, name, move, alike, inputs, outputs, opts, *, reduces=False, root=None, written=None):
        """Register this rank's call; the last to arrive moves the data. ``alike`` must agree on all ranks."""
        self._issue()
        reduction = reduction_of(self, name, opts) if reduces else None
        check_plain(self, name, alike or inputs, reduction)
        how = [word for word in (reduction, root) if word is not None]
        signature = Signature(
            name,
            root if root is None else self.group.ranks[root],
            reduction,
            tuple([tensor.dtype for tensor in alike]),
            tuple([tensor.shape for tensor in alike]),
        )
        meeting, full = self.group.join(self.index, Call(signature, inputs, outputs, here()))
        if self.simulation.record:
            self.simulation.record.collective(self, meeting, name, root, inputs, outputs, alike)
        if full:
            if not self.simulation.fake:
                with unobserved():
                    move([meeting.calls[index] for index in range(self.count)], *how)
            meeting.calls.clear()  # from here on, each rank's tensors live as long as it wants
            self.scheduler.set(meeting)
            if not opts.asyncOp:
                self.scheduler.give_way()
        if self.simulation.fake:
            self.simulation.fake.forget(tensors_in(outputs))
        return self._handle(meeting, written or outputs, opts.asyncOp, inputs)

    def _post(self, name, tensors, peer, tag):
        self._issue()
        if peer is not None and not 0 <= peer < self.count:
            raise ValueError(f"{name}: {self.group} has group ranks 0 to {self.count - 1}, got {peer}")
        check_plain(self, name, tensors, None)
        mine = Message(self.group, name, self.index, peer, tag, tensors[0], here())
        alone = self.alone_with(peer)
        other = None if alone else self.group.post(mine)
        if self.simulation.record:
            self.simulation.record.message(self, mine, other)
        if other:
            sent, received = (mine, other) if name == "send" else (other, mine)
            if not self.simulation.fake:
                with unobserved():
                    transfer.put([received.tensor], [sent.tensor])
            received.peer = sent.owner
            mine.tensor = other.tensor = None
            self.scheduler.set(other)
        if other or alone:
            self.scheduler.set(mine)
        if self.simulation.fake and name == "recv":
            self.simulation.fake.forget(tensors)
        return self._handle(mine, tensors, True)

    def alone_with(self, peer):
        """Does ``peer`` not run, and is taken to do its part?"""
        return peer is not None and self.group.ranks[peer] not in self.simulation.present

    def _issue(self):
        task = self.scheduler.issue()
        if task.rank != self.owner:
            raise RuntimeError(f"rank {task.rank} uses a process group of rank {self.owner}: each rank has its own")

    def _handle(self, event, tensors, asynchronous, inputs=()):
        if self.coalesced is None and not asynchronous:
            self.simulation.wait(event, self.patience)
            return DONE
        work = SimulatedWork(event, self.simulation, tensors, inputs, self.patience)
        if self.coalesced is None:
            return work
        self.coalesced.append(work)
        return DONE

    def _start_coalescing(self, device):
        self.coalesced = []

    def _end_coalescing(self, device):
        works, self.coalesced = self.coalesced, None
        return Works(works)

    def _all_to_all(self, calls):
        check_splits(self.group, calls)
        transfer.all_to_all(calls)

    # What torch.distributed asks of a group.

    def _get_backend(self, device):
        return self

    def rank(self):
        return self.index

    def size(self):
        return self.count

    getRank, getSize = rank, size

    def name(self):
        return "simulated"

    getBackendName = _get_backend_name = name

    @property
    def group_name(self):
        return self.group.name

    @property
    def group_desc(self):
        return self.description

    def getGroupName(self):
        return self.group.name

    def getGroupDesc(self):
        return self.description

    def _set_group_name(self, name):
        self.group.name = name

    def _set_group_desc(self, description):
        self.description = description

    setGroupName, setGroupDesc = _set_group_name, _set_group_desc

    @property
    def _device_types(self):
        return [torch.device("cpu")]

    def shutdown(self):
        pass

    abort = shutdown
