"""Save and load a checkpoint: gathered or sharded, for any number of ranks, in any ZeRO stage or none.

    save(zero, folder)    writes files, one per rank; replaces the last save (files.py)
    gathered(zero)        full state dict: each parameter's master weight and optimizer states, the same on every rank
    sharded(zero)         sharded state dict: this rank's piece of each parameter, and its offset; sends nothing
    load(zero, folder)    or load(zero, *states): a gathered one, or those of all ranks that saved, in any order

A checkpoint describes parameters, independent of the sharding layout, so 8 ranks can save and 3 load (resharding). A
rank reads the pieces that overlap with its own shard (shard_overlap.py).

All ranks load, or none does. Each checks what it is given (rules.py) and builds its new shard; parameters change once
all ranks are ready to load the same checkpoint.

``gathered`` sends (p-1)/p of 12 bytes per parameter (master weight and two moments), and each rank then holds all of
them; ``sharded`` copies its 12/p to the host, and so does ``save``. ``load`` holds 12/p more until it has changed over;
of a folder it reads only that.
"""

import os
from contextlib import ExitStack, contextmanager

import torch

from ..collectives.agreement import around, broadcast_all
from . import files as files
from .consensus import consensus, place_in
from .rules import COMMON, CheckpointError, buffers_of, check, nothing_else, one_layout, require, weights_of
from .state import check_finite, shard_of, state_of

NOTHING_SAVED = "save failed; nothing was saved"


@torch.no_grad()
def gathered(zero):
    """The full state dict, as one rank would save it. A collective: all ranks get the same."""
    state = state_of(zero, lambda row, vector: dict(zip(row.parameters, row.gathered(vector))), zero.buffers, 0, 1)
    if place_in(zero.group)[1] > 1:
        broadcast_all(state["buffers"].values(), group=zero.group)
    return state


@torch.no_grad()
def sharded(zero):
    """The sharded state dict: this rank's pieces, flat, in host memory. Rank 0's has the buffers, too."""

    def pieces(row, vector):
        return {p: vector[s.place : s.place + s.size].detach().to("cpu", copy=True) for p, s in zero.saved(row).items()}

    return state_of(zero, pieces, zero.saved_buffers, *place_in(zero.group))


@torch.no_grad()
def save(zero, folder):
    """Write a checkpoint to ``folder``, which all ranks must see. It replaces the previous one once all is written.

    A collective. Raises ``CheckpointError`` on all ranks if one fails (a full disk, NaN); then the folder is unchanged.
    """
    if zero.replicas:  # the first of those that have the same shard saves it, and the others wait
        with consensus(NOTHING_SAVED, zero.replicas, CheckpointError):
            if place_in(zero.replicas)[0] == 0:
                _save(zero, folder)
    else:
        _save(zero, folder)


def _save(zero, folder):
    saving = Saving(zero, folder)
    saving.end(saving.write)


class Saving:
    """Begins with a copy of what is saved, so training can continue. All methods but ``write`` are collectives.

    write   this rank's file, in any thread; returns what ``end`` needs
    end     once all have written: it is the checkpoint now
    """

    def __init__(self, zero, folder):
        self.folder, self.group, self.rank = folder, zero.group, place_in(zero.group)[0]
        with ExitStack() as stack:
            with self._consensus() as exchange:
                exchange.mine = stack.enter_context(files.new_save(folder)) if self.rank == 0 else None
            self.new = exchange.all[0]
            with self._consensus():
                self.state = sharded(zero)
                check_finite(self.state)
            self.under_way = stack.pop_all()

    def write(self):
        return files.write(self.folder, self.new, self.state)

    def end(self, written):
        """``written()`` gives what ``write`` has returned, or raises what it has raised."""
        with self.under_way:
            with self._consensus() as exchange:
                exchange.mine = written(), self.state["layout"]
            with self._consensus():
                if self.rank == 0:
                    ranks, layouts = zip(*exchange.all)
                    common = {key: self.state[key] for key in COMMON} | {"layout": one_layout(layouts)}
                    files.publish(self.folder, self.new, common, ranks)

    def give_up(self):
        """Abort the save and leave the folder unchanged. (For rank 0; not a collective call.)"""
        self.under_way.close()

    def _consensus(self):
        return consensus(NOTHING_SAVED, self.group, CheckpointError)


@torch.no_grad()
def load(zero, *saved):
    """Load weights, optimizer states and options, buffers and the step count. A collective; returns the states.

    ``saved``: a folder, or states. If one rank cannot load, all raise ``CheckpointError``, a ``ValueError``, with the
    reason and the rank (``OffloadError``, if an offload device is full), and no rank is modified.
    """
    states, names = _load(zero, saved), zero.names
    for row in zero.rows:
        if group := zero.param_group(row):
            options = states[0]["layout"][names[row.parameters[0]]]["options"]
            group.update({key: _like(group.get(key), value) for key, value in options.items()})
    zero.steps = states[0]["step"]
    return states


@torch.no_grad()
def load_weights(zero, *saved):
    """Load weights and buffers only; optimizer states are reset."""
    _load(zero, saved, training=False)


def _load(zero, saved, training=True):
    """The states, by rank: loaded once all ranks are ready to load the same."""
    with _by_all(zero) as exchanges:
        states, shards = _prepared(zero, saved, training)
        of_all = files.fingerprint([states[0].get(key) for key in ("save", *COMMON)])
        for exchange in exchanges:
            exchange.mine = of_all, [*zero.names.values(), *zero.buffers]
    with _by_all(zero):
        for exchange in exchanges:
            require(exchange.mine[0] == exchange.all[0][0], "it was given another checkpoint than rank 0")
        nothing_else(states, {name for exchange in exchanges for _, names in exchange.all for name in names})
    zero.restore(shards)
    saved_buffers = buffers_of(states)
    for name, buffer in zero.buffers.items():
        buffer.copy_(saved_buffers[name])
    return states


@contextmanager
def _by_all(zero):
    """Consensus in the shard group, and in that of its replicas."""
    with ExitStack() as stack:
        groups = around(zero.group, zero.replicas)
        yield [stack.enter_context(consensus("load failed; no rank was modified", g, CheckpointError)) for g in groups]


def _prepared(zero, saved, training):
    from_files = len(saved) == 1 and isinstance(saved[0], str | os.PathLike)
    states = files.read(saved[0], *place_in(zero.group)) if from_files else list(saved)
    states = states if training else [weights_of(state) for state in states]
    check(states, zero, training)
    states.sort(key=lambda state: state["rank"])
    names = zero.names
    return states, {row: shard_of(row, names, states) for row in zero.rows}


def _like(current, value):
    """Files know no tuples, and a learning rate that is a tensor stays one."""
    if isinstance(current, torch.Tensor):
        return torch.full_like(current, value)
    return tuple(value) if isinstance(current, tuple) else value
