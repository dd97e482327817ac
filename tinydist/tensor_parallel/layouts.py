"""Layouts of activations between tensor-parallel layers, and the collectives that enter and leave such a layer.

    Replicated            every rank has the whole sequence; norm, dropout and residual sum are computed redundantly
    SequenceParallel      every rank has its part of the sequence, and computes these for its part only

                          enter: forward   backward            leave: forward   backward
    Replicated            identity         all-reduce          all-reduce       identity
    SequenceParallel      all-gather       reduce-scatter      reduce-scatter   all-gather

Within a layer a rank has all tokens and some of the channels. Its output is a partial sum, reduced over the ranks; in
backward, its gradient of the input is one, too. Megatron-LM calls ``enter`` f and ``leave`` g; with sequence
parallelism, g and g-bar. If one is forgotten, the loss is still finite and decreases, but the model is a different one.

General rule: the gradients of a replicated tensor that is used in sharded computation must be summed over the ranks.
This includes a norm's weight with sequence parallelism.

Each method starts a collective and returns a function that waits for it. An all-reduce sends 2(t-1)/t of the bytes, as
many as the other two together. Source: Shoeybi et al., Megatron-LM, 2019, section 3; Korthikanti et al. 2022, section
4.2.2.
"""

import torch
import torch.distributed as dist
from torch.autograd import Function
from torch.autograd.function import once_differentiable

from ..annotate import purpose
from ..collectives.autograd import Conjugates, along
from ..rules import flag, one_of, validate, whole

WAYS = ("save", "regather", "overlap")  # of the input that is all-gathered for a matmul


@validate(group=dist.ProcessGroup, async_grad_reduce=flag)
class ActivationLayout:
    """``async_grad_reduce``: backward's collectives overlap with computing the weights' gradients."""

    cuts_tokens, way = False, "save"

    def __init__(self, group=None, async_grad_reduce=True):
        self.group, self.async_grad_reduce = group, async_grad_reduce
        self.rank, self.ranks = dist.get_rank(group), dist.get_world_size(group)
        self.smaller = {}

    def among(self, ranks):
        """``Replicated`` among some ranks of the group; the new group is cached."""
        if ranks not in self.smaller:
            world = dist.get_process_group_ranks(self.group or dist.group.WORLD)
            self.smaller[ranks] = Replicated(dist.new_group([world[r] for r in ranks], use_local_synchronization=True))
        return self.smaller[ranks]

    def enter(self, x):
        """Into a tensor-parallel layer."""
        return Enter.apply(x, self)

    def leave(self, x):
        """Out of it: reduce this rank's partial sum ``x``, which is overwritten."""
        return Leave.apply(x, self)

    def add_up_gradient(self, parameter):
        """All-reduce the gradient of a replicated parameter before it is accumulated."""
        if parameter.requires_grad:
            parameter.register_hook(lambda gradient: all_reduced(gradient.clone(), self.group)())


def after(work, result):
    """Waits for ``work``, then returns ``result()``."""

    def wait():
        work.wait()
        return result()

    return wait


def all_reduced(x, group):
    """In place."""
    work = dist.all_reduce(x, group=group, async_op=True)
    return after(work, lambda: x)


class Replicated(ActivationLayout):
    """``x`` [B, T, D] is the same on all ranks."""

    def gather(self, x):
        return lambda: x

    def add_up(self, x):
        return all_reduced(x, self.group)


class SequenceParallel(ActivationLayout):
    """``x`` [B, T/t, D] is this rank's part along ``dim``.

    way:  "save" the gathered tokens for backward; "regather" them in backward; or "overlap" a ring all-gather with the
          matmul of what has arrived (and save).
    """

    cuts_tokens = True

    @validate(dim=whole, way=one_of(WAYS))
    def __init__(self, group=None, async_grad_reduce=True, *, dim=1, way="save"):
        super().__init__(group, async_grad_reduce)
        self.dim, self.way = dim, way

    def gather(self, x):
        parts = x.new_empty(self.ranks, *x.shape)
        work = dist.all_gather_single(parts.flatten(0, 1), x.contiguous(), group=self.group, async_op=True)
        # One tensor, without a copy if there is nothing before the tokens, or one sequence.
        return after(work, lambda: parts.movedim(0, self.dim).flatten(self.dim, self.dim + 1))

    def add_up(self, x):
        parts = self.parts(x).contiguous()
        mine = torch.empty_like(parts[0])
        work = dist.reduce_scatter_single(mine, parts.flatten(0, 1), group=self.group, async_op=True)
        return after(work, lambda: mine)

    @validate(x=torch.Tensor)
    def own(self, x):
        """This rank's part of the sequence; backward all-gathers."""
        return Conjugates.apply(x, lambda x: self.parts(x)[self.rank].contiguous(), lambda x: self.gather(x)())

    def parts(self, x):  # [t, B, T/t, D]
        tokens = x.shape[along(x, self.dim)]
        if tokens % self.ranks:
            rule = f"the sequence length ({tokens}) must be divisible by the tensor-parallel degree ({self.ranks})"
            raise ValueError(f"sequence parallelism: {rule}")
        return x.unflatten(self.dim, (self.ranks, -1)).movedim(self.dim, 0)


class Enter(Function):
    @staticmethod
    def forward(ctx, x, layout):
        ctx.layout = layout
        with purpose("activations"):
            return layout.gather(x)()

    @staticmethod
    @once_differentiable
    def backward(ctx, gradient):
        return ctx.layout.add_up(gradient.clone())(), None  # autograd may share it


class Leave(Function):
    @staticmethod
    def forward(ctx, x, layout):
        ctx.layout = layout
        if not layout.cuts_tokens:
            ctx.mark_dirty(x)
        with purpose("activations"):
            return layout.add_up(x)()

    @staticmethod
    @once_differentiable
    def backward(ctx, gradient):
        return ctx.layout.gather(gradient)(), None
