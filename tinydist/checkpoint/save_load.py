"""Checkpoints: whole, or each rank's shard; loaded by any number of ranks, in any stage or none (whole.py).

    save(zero, folder)    to files, one a rank, in the place of what was saved there before (files.py)
    gathered(zero)        a state: every parameter's master weight and optimizer states, the same on every rank
    sharded(zero)         a state: of each parameter this rank's piece, and where it lies: nothing is sent
    load(zero, folder)    or load(zero, *states): a gathered one, or those of all ranks that saved, in any order

Saved is what belongs to a parameter, not how rows were laid out: so 8 ranks save, and 3 load. A rank takes what
overlaps with the pieces that it owns now (pieces.py), of a state as state.py has it.

Ranks load all or nothing. Each checks what it is given (rules.py) and puts its own new shard together; the
first parameter changes when all ranks have said that they are ready, and load the same.

``gathered`` sends (p-1)/p of 12 bytes a parameter (master weight and two moments), and each rank then holds all of
them; ``sharded`` copies its 12/p to the host, and so does ``save``. ``load`` holds 12/p more until it has changed over;
of a folder it reads only that.
"""

import os
from contextlib import ExitStack, contextmanager

import torch

from ..collectives.agreement import around, broadcast_all
from . import files as files
from .rules import COMMON, CheckpointError, buffers_of, check, nothing_else, one_layout, require, weights_of
from .state import check_finite, shard_of, state_of
from .unanimous import place_in, unanimous

NOTHING_SAVED = "save failed; nothing was saved"


@torch.no_grad()
def gathered(zero):
    """Whole tensors, as one rank would have saved them. All ranks call it, and all get the same."""
    state = state_of(zero, lambda row, vector: dict(zip(row.parameters, row.gathered(vector))), zero.buffers, 0, 1)
    if place_in(zero.group)[1] > 1:
        broadcast_all(state["buffers"].values(), group=zero.group)
    return state


@torch.no_grad()
def sharded(zero):
    """This rank's pieces, as flat tensors in the host's memory. Rank 0's has the buffers, too."""

    def pieces(row, vector):
        return {p: vector[s.place : s.place + s.size].detach().to("cpu", copy=True) for p, s in zero.saved(row).items()}

    return state_of(zero, pieces, zero.saved_buffers, *place_in(zero.group))


@torch.no_grad()
def save(zero, folder):
    """All ranks call it; ``folder`` is one that all of them see. What was saved there is replaced once all is written.

    Raises ``CheckpointError`` on all ranks if one of them fails (a full disk, NaN); then the folder is as before.
    """
    if zero.replicas:  # the first of those that have the same shard saves it, and the others wait
        with unanimous(NOTHING_SAVED, zero.replicas, CheckpointError):
            if place_in(zero.replicas)[0] == 0:
                _save(zero, folder)
    else:
        _save(zero, folder)


def _save(zero, folder):
    saving = Saving(zero, folder)
    saving.end(saving.write)


class Saving:
    """Begins with a copy of what is saved: from then on training may go on. All ranks call all of it but ``write``.

    write   this rank's file, in any thread. What it returns is for ``end``
    end     all have written: it is the checkpoint
    """

    def __init__(self, zero, folder):
        self.folder, self.group, self.rank = folder, zero.group, place_in(zero.group)[0]
        with ExitStack() as stack:
            with self._unanimous() as said:
                said.mine = stack.enter_context(files.new_save(folder)) if self.rank == 0 else None
            self.new = said.all[0]
            with self._unanimous():
                self.state = sharded(zero)
                check_finite(self.state)
            self.under_way = stack.pop_all()

    def write(self):
        return files.write(self.folder, self.new, self.state)

    def end(self, written):
        """``written()`` gives what ``write`` has returned, or raises what it has raised."""
        with self.under_way:
            with self._unanimous() as said:
                said.mine = written(), self.state["layout"]
            with self._unanimous():
                if self.rank == 0:
                    ranks, layouts = zip(*said.all)
                    common = {key: self.state[key] for key in COMMON} | {"layout": one_layout(layouts)}
                    files.publish(self.folder, self.new, common, ranks)

    def give_up(self):
        """The folder is as before. (Of rank 0, on which the others need not wait.)"""
        self.under_way.close()

    def _unanimous(self):
        return unanimous(NOTHING_SAVED, self.group, CheckpointError)


@torch.no_grad()
def load(zero, *saved):
    """Weights, optimizer states, its options, buffers and the count of steps, on every rank. All ranks call it.

    ``saved``: a folder, or states. If one rank must refuse what it is given, all raise ``CheckpointError``, a
    ``ValueError``, with the reason and the rank; ``OffloadError``, if a home has no room for it. Then nothing has been
    loaded on any of them. Returns the states.
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
    """Weights and buffers alone, into whatever trains or does not. Optimizer states begin anew."""
    _load(zero, saved, training=False)


def _load(zero, saved, training=True):
    """The states, by rank: loaded once all are ready, and load the same."""
    with _by_all(zero) as words:
        states, shards = _prepared(zero, saved, training)
        of_all = files.fingerprint([states[0].get(key) for key in ("save", *COMMON)])
        for said in words:
            said.mine = of_all, [*zero.names.values(), *zero.buffers]
    with _by_all(zero):
        for said in words:
            require(said.mine[0] == said.all[0][0], "what it is given is another checkpoint than rank 0's")
        nothing_else(states, {name for said in words for _, names in said.all for name in names})
    zero.restore(shards)
    saved_buffers = buffers_of(states)
    for name, buffer in zero.buffers.items():
        buffer.copy_(saved_buffers[name])
    return states


@contextmanager
def _by_all(zero):
    """By those that share a model, and by those that have the same shard."""
    with ExitStack() as stack:
        groups = around(zero.group, zero.replicas)
        yield [stack.enter_context(unanimous("load failed; no rank was modified", g, CheckpointError)) for g in groups]


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
