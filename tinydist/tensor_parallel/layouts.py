"""Where activations are between the layers that ranks share, and how they enter such a layer and leave it.

    Whole      every rank has all tokens; each layer's norm, dropout and sum with the residual is computed by all alike
    Tokens     every rank has its part of the tokens, and computes those for them alone: sequence parallelism

                    enter: forward   backward            leave: forward   backward
    Whole           as it is         all-reduce          all-reduce       as it is
    Tokens          all-gather       reduce-scatter      reduce-scatter   all-gather

Within a layer a rank has all tokens, and some of the channels. What comes out is its summand: so one adds up. What goes
back is its summand of the input's gradient: so one adds up again. Megatron-LM calls ``enter`` f, ``leave`` g; with
Tokens, g and g-bar. Forget one, and the loss is finite, falls, and is that of another model.

A rule for all that is replicated and enters work that is dealt out: the gradients of its copies are added up. So those
of a norm's weight are, too, where the norm sees a part of the tokens alone.

Each starts a collective and returns what ends it. An all-reduce sends 2(t-1)/t of the bytes, as the two others together
do. Source: Shoeybi et al., Megatron-LM, 2019, section 3; Korthikanti et al. 2022, section 4.2.2.
"""

import torch
import torch.distributed as dist
from torch.autograd import Function
from torch.autograd.function import once_differentiable

from ..annotate import purpose
from ..collectives.autograd import Conjugates, along
from ..rules import flag, one_of, takes, whole

WAYS = ("save", "regather", "overlap")  # what becomes of the tokens that are all-gathered for a matmul


@takes(group=dist.ProcessGroup, overlap=flag)
class Layout:
    """``overlap``: what backward sends is on its way while gradients of weights are computed."""

    cuts_tokens, way = False, "save"

    def __init__(self, group=None, overlap=True):
        self.group, self.overlap = group, overlap
        self.rank, self.ranks = dist.get_rank(group), dist.get_world_size(group)
        self.smaller = {}

    def among(self, ranks):
        """The same among some ranks of the group; asked for again, it is the same group."""
        if ranks not in self.smaller:
            world = dist.get_process_group_ranks(self.group or dist.group.WORLD)
            self.smaller[ranks] = Whole(dist.new_group([world[r] for r in ranks], use_local_synchronization=True))
        return self.smaller[ranks]

    def enter(self, x):
        """A part of the layer begins here, of whichever rank."""
        return Enter.apply(x, self)

    def leave(self, x):
        """``x``, this rank's summand, is used up."""
        return Leave.apply(x, self)

    def add_up_gradient(self, parameter):
        """Each rank's is of its own part of the work; before it is accumulated, all are added up."""
        if parameter.requires_grad:
            parameter.register_hook(lambda gradient: Whole.add_up(self, gradient.clone())())


class Whole(Layout):
    """``x`` [B, T, D] is the same on all ranks."""

    def gather(self, x):
        return lambda: x

    def add_up(self, x):
        """In place."""
        work = dist.all_reduce(x, group=self.group, async_op=True)
        return lambda: (work.wait(), x)[1]


class Tokens(Layout):
    """``x`` [B, T/t, D] is this rank's part along ``dim``.

    way:  "save" the gathered tokens for backward; "regather" them in backward; or "overlap" a ring all-gather with the
          matmul of what has arrived (and save).
    """

    cuts_tokens = True

    @takes(dim=whole, way=one_of(WAYS))
    def __init__(self, group=None, overlap=True, *, dim=1, way="save"):
        super().__init__(group, overlap)
        self.dim, self.way = dim, way

    def gather(self, x):
        parts = x.new_empty(self.ranks, *x.shape)
        work = dist.all_gather_single(parts.flatten(0, 1), x.contiguous(), group=self.group, async_op=True)
        # One tensor, without a copy if there is nothing before the tokens, or one sequence.
        return lambda: (work.wait(), parts.movedim(0, self.dim).flatten(self.dim, self.dim + 1))[1]

    def add_up(self, x):
        parts = self.parts(x).contiguous()
        mine = torch.empty_like(parts[0])
        work = dist.reduce_scatter_single(mine, parts.flatten(0, 1), group=self.group, async_op=True)
        return lambda: (work.wait(), mine)[1]

    @takes(x=torch.Tensor)
    def own(self, x):
        """From all tokens to this rank's. In backward they come together again."""
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
        return ctx.layout.add_up(gradient.clone())(), None  # it may be somebody else's, too


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
