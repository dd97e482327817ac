"""The `simulated` process group: implements the methods of torch.distributed's ProcessGroup.

Each collective says which of its tensors must be alike on all ranks, which take part, and what moves once all ranks
are there (transfer.py). Ranks and roots are those of the group, as torch.distributed passes them.
"""

from itertools import count

from ..annotate import region
from ..torch_internals import graph_task, native_code_calls
from . import transfer
from .handle import Asynchronous, Handle
from .matching import MismatchError
from .scheduler import TimedOut
from .work import NO_TIME, seconds


class SimulatedProcessGroup(Handle):
    def __init__(self, simulation, group, index):
        super().__init__(simulation, group, index)
        self.buckets = None, None  # a backward under way, and a count of what torch's DDP has reduced in it

    # Collectives over whole tensors.

    def allreduce(self, tensors, opts=Asynchronous):
        if native_code_calls():
            with self._bucket(tensors):
                return self._all_reduce(tensors, opts)
        return self._all_reduce(tensors, opts)

    def _all_reduce(self, tensors, opts):
        return self._meet("all_reduce", transfer.all_reduce, tensors, tensors, tensors, opts, reduces=True)

    def _bucket(self, tensors):
        """Torch's DDP reduces its buckets in order, and an integer tensor of used parameters."""
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
            self._check_pieces("all_gather", "output", pieces, tensor)
        return self._meet("all_gather", transfer.all_gather, inputs, inputs, outputs, opts)

    def gather(self, outputs, inputs, opts=Asynchronous):
        for pieces in outputs:
            self._check_pieces("gather", "gather_list", pieces, inputs[0])
        return self._meet("gather", transfer.gather, inputs, inputs, outputs, opts, root=opts.rootRank)

    def scatter(self, outputs, inputs, opts=Asynchronous):
        for pieces in inputs:
            self._check_pieces("scatter", "scatter_list", pieces, outputs[0])
        return self._meet("scatter", transfer.scatter, outputs, inputs, outputs, opts, root=opts.rootRank)

    def reduce_scatter(self, outputs, inputs, opts=Asynchronous):
        for pieces, tensor in zip(inputs, outputs, strict=True):
            self._check_pieces("reduce_scatter", "input", pieces, tensor)
        return self._meet("reduce_scatter", transfer.reduce_scatter, outputs, inputs, outputs, opts, reduces=True)

    def alltoall(self, outputs, inputs, opts=Asynchronous):
        for what, tensors in (("output", outputs), ("input", inputs)):
            self._check_count("all_to_all", what, tensors)
        return self._meet("all_to_all", self._all_to_all, [], inputs, outputs, opts)

    def _all_to_all(self, calls):
        check_splits(self.group, calls)
        transfer.all_to_all(calls)

    # The same over one tensor, cut in pieces.

    def all_gather_single_coalesced(self, outputs, inputs, opts=Asynchronous):
        pieces = [self._cut("all_gather", "output", o, i) for o, i in zip(outputs, inputs, strict=True)]
        flat = [tensor.reshape(-1) for tensor in inputs]
        return self._meet("all_gather", transfer.all_gather, inputs, flat, pieces, opts, written=outputs)

    def reduce_scatter_single_coalesced(self, outputs, inputs, opts=Asynchronous):
        pieces = [self._cut("reduce_scatter", "input", i, o) for o, i in zip(outputs, inputs, strict=True)]
        flat = [tensor.view(-1) for tensor in outputs]
        return self._meet(
            "reduce_scatter", transfer.reduce_scatter, outputs, pieces, flat, opts, reduces=True, written=outputs
        )

    def all_to_all_single(self, output, input, output_splits=(), input_splits=(), opts=Asynchronous):
        outputs = self._split("output", output.data, output_splits)  # .data: see transfer.put
        inputs = self._split("input", input, input_splits)
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

    # Validates a collective's arguments as a real backend does, and splits them into one piece per rank.

    def _check_count(self, name, what, tensors):
        if len(tensors) != self.count:
            raise ValueError(
                f"{self._where(name)}: {what} needs {self.count} tensors, one for each rank, got {len(tensors)}"
            )

    def _check_pieces(self, name, what, pieces, like):
        """One piece for each rank, each of the shape and dtype of ``like``."""
        self._check_count(name, what, pieces)
        for index, piece in enumerate(pieces):
            if piece.shape != like.shape or piece.dtype != like.dtype:
                raise ValueError(
                    f"{self._where(name)}: {what}[{index}] is {list(piece.shape)} {piece.dtype}, but the tensor that "
                    f"belongs to it is {list(like.shape)} {like.dtype}"
                )

    def _cut(self, name, what, whole, piece):
        """``whole`` as one flat piece for each rank, each of the size of ``piece``."""
        needed = self.count * piece.numel()
        if whole.numel() != needed or whole.dtype != piece.dtype:
            raise ValueError(
                f"{self._where(name)}: {what} needs {self.count} ranks x {piece.numel()} = {needed} elements of "
                f"{piece.dtype}, got {whole.numel()} of {whole.dtype}"
            )
        return whole.view(self.count, -1).unbind() if needed else [whole.view(-1)] * self.count

    def _split(self, what, tensor, sizes):
        """``tensor`` cut along its first dim: by ``sizes``, or evenly."""
        rows = tensor.shape[0]
        if not sizes and rows % self.count:
            raise ValueError(
                f"{self._where('all_to_all')}: {rows} rows of {what} are not divisible by {self.count} ranks"
            )
        sizes = list(sizes) or [rows // self.count] * self.count
        if len(sizes) != self.count or sum(sizes) != rows:
            raise ValueError(
                f"{self._where('all_to_all')}: {what} needs {self.count} split sizes whose sum is its {rows} rows, "
                f"got {sizes}"
            )
        return tensor.split(sizes)


def check_splits(group, calls):
    """What one rank of an all_to_all sends another must be what that one expects."""
    for source, sender in enumerate(calls):
        for destination, receiver in enumerate(calls):
            sent, expected = sender.inputs[destination], receiver.outputs[source]
            if sent.shape != expected.shape or sent.dtype != expected.dtype:
                source, destination = group.ranks[source], group.ranks[destination]
                raise MismatchError(
                    f"all_to_all on {group}: rank {source} sends {list(sent.shape)} {sent.dtype} to rank "
                    f"{destination}, which expects {list(expected.shape)} {expected.dtype} from it\n"
                    f"  rank {source} calls at {sender.site}\n  rank {destination} calls at {receiver.site}"
                )
