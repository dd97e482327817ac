"""A rank's handle on a process group: registers its calls, and implements torch.distributed's interface."""

import torch
import torch.distributed as dist
from torch._subclasses import FakeTensor
from torch.distributed import ReduceOp

from ..rules import ranks_in_words
from ..torch_internals import c10d_calls, unobserved
from ..tracing.tensor_storage import tensors_in
from . import transfer
from .autograd_warning import warn_in_backward
from .call_sites import here
from .matching import Message, RankCall, Signature
from .work import DONE, SimulatedWork, Works


def _outside(*_):
    raise RuntimeError("the backend 'simulated' works only inside tinydist.launch(fn, ranks=...)")


dist.Backend.register_backend("simulated", _outside, devices=["cpu"])


class Asynchronous:
    """The options of a call that passes none."""

    asyncOp, reduceOp, rootRank = True, ReduceOp(ReduceOp.SUM), 0


class Handle(dist.ProcessGroup):
    """One rank's handle on a ``matching.SharedGroup``. ``index`` is its rank in the group."""

    def __init__(self, simulation, group, index):
        super().__init__(index, len(group.ranks))
        self.simulation, self.scheduler, self.group = simulation, simulation.scheduler, group
        self.index, self.count, self.owner = index, len(group.ranks), group.ranks[index]
        self.description = "undefined"
        self.backend = "simulated"  # or what the program has asked for
        self.timeout = None  # seconds that a wait may take, where the program has chosen them
        self.coalesced = None  # the works since _start_coalescing

    def __repr__(self):  # as torch says which group it does not know
        ended = ", whose run has ended" if self.scheduler.running is None else ""
        return f"<simulated group of {ranks_in_words(self.group.ranks)}{ended}>"

    def move_to(self, simulation):
        """Rebind the handle to the group of the same name in another run of the same ranks."""
        self.simulation, self.scheduler = simulation, simulation.scheduler
        self.group = simulation.group(self.group.name, self.group.ranks)
        simulation.handles.add(self)

    # How calls meet.

    def _meet(self, name, move, alike, inputs, outputs, opts, *, reduces=False, root=None, written=None):
        """Register this rank's call; the last to arrive moves the data. ``alike`` must agree on all ranks."""
        self._issue()
        reduction = self._reduction(name, opts) if reduces else None
        self._check_plain(name, alike or inputs, reduction)
        if self.simulation.gpus:
            self._check_devices(name, [*inputs, *outputs], reduction)
        signature = Signature(
            name,
            root if root is None else self.group.ranks[root],
            reduction,
            tuple([tensor.dtype for tensor in alike]),
            tuple([tensor.shape for tensor in alike]),
        )
        meeting, full = self.group.join(self.index, RankCall(signature, inputs, outputs, here()))
        if self.simulation.record:
            self.simulation.record.collective(self, meeting, name, root, inputs, outputs, alike)
        if full:
            if not self.simulation.fake or self._have_data(inputs, outputs):
                how = [word for word in (reduction, root) if word is not None]
                with unobserved():
                    move(self._calls_of_all(meeting), *how)
            meeting.calls.clear()  # from here on, each rank's tensors live as long as it wants
            self.scheduler.set(meeting)
            if not opts.asyncOp:
                self.scheduler.give_way()
        if self.simulation.fake:
            self.simulation.fake.forget(tensors_in(outputs))
        warn_in_backward(name, written or outputs)
        return self._handle(meeting, written or outputs, opts.asyncOp, inputs)

    def _calls_of_all(self, meeting):
        """By rank; one that does not run is taken to do the same as this one."""
        return [meeting.calls.get(index, meeting.calls[self.index]) for index in range(self.count)]

    def _post(self, name, tensors, peer, tag):
        self._issue()
        if peer is not None and not 0 <= peer < self.count:
            raise ValueError(f"{name}: {self.group} has group ranks 0 to {self.count - 1}, got {peer}")
        self._check_plain(name, tensors, None)
        if self.simulation.gpus:
            self._check_devices(name, tensors)
        mine = Message(self.group, name, self.index, peer, tag, tensors[0], here())
        alone = self.alone_with(peer)
        other = None if alone else self.group.post(mine)
        if self.simulation.record:
            self.simulation.record.message(self, mine, other)
        if other:
            sent, received = (mine, other) if name == "send" else (other, mine)
            if not self.simulation.fake or self._have_data([received.tensor]):
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

    def _have_data(self, *tensors):
        """Nothing moves of fake tensors; where only GPUs are fake, those of the host are real."""
        return self.simulation.gpus is not None and not any(
            isinstance(each, FakeTensor) for each in tensors_in(tensors)
        )

    def alone_with(self, peer):
        """Does ``peer`` not run, and is taken to do its part?"""
        return peer is not None and self.group.ranks[peer] not in self.simulation.present

    def _issue(self):
        task = self.scheduler.issue()
        if task.rank != self.owner:
            raise RuntimeError(f"rank {task.rank} uses a process group of rank {self.owner}: each rank has its own")

    def _where(self, name):
        return f"{name} on rank {self.owner} of {self.group}"

    def _reduction(self, name, opts):
        """The name of the reduction that ``opts`` asks for."""
        reduction = transfer.NAMES.get(int(opts.reduceOp.op))
        if reduction is None:
            raise NotImplementedError(f"{self._where(name)}: simulated ranks do not support {opts.reduceOp.op}")
        return reduction

    def _check_plain(self, name, tensors, reduction):
        """Dense and with data; a sum may be of sparse ones, as on gloo."""
        for tensor in tensors:
            dense = tensor.layout is torch.strided
            if dense and not (tensor.is_quantized or tensor.is_nested or tensor.is_meta):
                continue
            if name == "all_reduce" and reduction == "SUM" and tensor.is_sparse:
                continue
            what = str(tensor.dtype if tensor.is_quantized else tensor.device if dense else tensor.layout)
            also = ", or sparse_coo to sum" if name == "all_reduce" else ""
            raise ValueError(f"{self._where(name)}: the tensors must be dense and have data{also}, got one of {what}")

    def _check_devices(self, name, tensors, reduction=None):
        theirs = tensors_in(tensors) if c10d_calls() else []
        self.simulation.gpus.check_call(self.backend, name, theirs, reduction)

    def _handle(self, event, tensors, asynchronous, inputs=()):
        if self.coalesced is None and not asynchronous:
            self.simulation.wait(event, self.timeout)
            return DONE
        work = SimulatedWork(event, self.simulation, tensors, inputs, self.timeout)
        if self.coalesced is None:
            return work
        self.coalesced.append(work)
        return DONE

    def _start_coalescing(self, device):
        self.coalesced = []

    def _end_coalescing(self, device):
        works, self.coalesced = self.coalesced, None
        return Works(works)

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
        gpus = self.simulation.gpus
        return gpus.devices_of(self.backend) if gpus else [torch.device("cpu")]

    def shutdown(self):
        pass

    abort = shutdown
