"""Column-parallel and row-parallel linear layers: the W of y = x W is sharded by columns or by rows.

    by columns    W = [W1 W2]    x W  = [x W1  x W2]          each rank has all of x, and some columns of y
    by rows       W = [W1 / W2]  x W  = x1 W1 + x2 W2         each rank has some columns of x, and a partial sum of y

First by columns, then by rows: the first one's output is the second one's input, so there is one all-reduce in forward
and one in backward. In between, anything elementwise (GELU) or per head (attention) needs no communication.
(nn.Linear stores W transposed: there columns are rows.)

    backward, by columns    dx = dy W^T, a partial sum     its all-reduce overlaps with    dW = x^T dy

With ``SequenceParallel``, x is all-gathered before the matmul. Backward needs it once more:

    save        the gathered x                                       4 + 30/t of activations, 8bsh(t-1)/t elements sent
    regather    this rank's part, gathered again during dx           34/t, 10bsh(t-1)/t

Source: Shoeybi et al., Megatron-LM, 2019, section 3; Korthikanti et al. 2022, section 4.2.2.
"""

from dataclasses import replace
from functools import partial

import torch
import torch.nn.functional as F
from torch import nn
from torch.autograd import Function
from torch.autograd.function import once_differentiable

from ..annotate import purpose
from ..collectives.autograd import Conjugates
from ..rules import flag, validate
from .cuts import Cut, copied
from .layouts import ActivationLayout, Replicated
from .ring import ColumnRing, RowRing


class ColumnProduct(Function):
    """x W^T + b for this rank's rows of W and b; ``layout`` enters x."""

    @staticmethod
    def forward(ctx, x, weight, bias, layout):
        with purpose("activations"):
            entered = layout.gather(x)()
            y = F.linear(entered, weight, bias)
        ctx.save_for_backward(x if layout.way == "regather" else entered, weight)
        ctx.layout = layout
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx, gradient):  # [B, T, V/t]
        (kept, weight), layout = ctx.saved_tensors, ctx.layout
        for_x, for_weight, for_bias, _ = ctx.needs_input_grad
        meanwhile = (lambda started: started) if layout.async_grad_reduce else at_once
        entered = meanwhile(layout.gather(kept)) if for_weight and layout.way == "regather" else lambda: kept
        dx = meanwhile(layout.add_up(gradient @ weight)) if for_x else lambda: None
        rows = gradient.flatten(0, -2)
        dw = rows.mT @ entered().flatten(0, -2) if for_weight else None
        db = rows.sum(0) if for_bias else None
        return dx(), dw, db, None


def at_once(started):
    """Wait for it now."""
    ended = started()
    return lambda: ended


class ParallelLinear(nn.Module):
    """A rank's part of ``linear``."""

    def __init__(self, linear, layout):
        super().__init__()
        self.layout = Replicated() if layout is None else layout
        self.in_features, self.out_features = linear.in_features, linear.out_features

    def extra_repr(self):
        return f"{self.in_features} -> {self.out_features}, of which {list(self.weight.shape)}"


@validate(linear=nn.Linear, layout=ActivationLayout, entered=flag, gather_output=flag, cut=Cut)
class ColumnParallelLinear(ParallelLinear):
    """x [B, T, D] to this rank's channels [B, T, V/t].

    entered:        x has entered already, for several layers at once.
    gather_output:  all-gather the output: [B, T, V].
    cut:            which rows of the weight; whole heads (kinds.py), say. None: evenly split.
    """

    def __init__(self, linear, layout=None, *, entered=False, gather_output=False, cut=None):
        super().__init__(linear, layout)
        self.entered, self.gather_output = entered, gather_output
        cut = cut or Cut.among(self.layout, 0, linear.out_features)
        self.weight = cut.parameter(linear.weight)
        self.bias = None if linear.bias is None else cut.parameter(linear.bias)
        if cut.copies > 1:
            sharing = self.layout.among(cut.holders)
            for parameter in self.parameters():
                sharing.add_up_gradient(parameter)

    def forward(self, x):
        if self.entered:
            y = F.linear(x, self.weight, self.bias)
        else:
            product = ColumnRing if self.layout.way == "overlap" else ColumnProduct
            y = product.apply(*in_autocast(x, self.weight, self.bias), self.layout)
        if self.gather_output:
            cut = replace(self.weight.cut, dim=y.ndim - 1)
            y = Conjugates.apply(y, partial(cut.whole, group=self.layout.group), cut.own)
        return y


@validate(linear=nn.Linear, layout=ActivationLayout)
class RowParallelLinear(ParallelLinear):
    """This rank's channels [B, T, D/t] to the sum over all ranks [B, T, V]; the bias is added after the sum."""

    def __init__(self, linear, layout=None):
        super().__init__(linear, layout)
        self.weight = Cut.among(self.layout, 1, linear.in_features).parameter(linear.weight)
        self.bias = None if linear.bias is None else copied(linear.bias)
        if self.layout.cuts_tokens and self.bias is not None:
            self.layout.add_up_gradient(self.bias)  # each rank adds it to its own tokens

    def forward(self, x):
        if self.layout.way == "overlap":
            out = RowRing.apply(*in_autocast(x, self.weight), self.layout)
        else:
            out = self.layout.leave(F.linear(x, self.weight))
        return out if self.bias is None else out + self.bias.to(out.dtype)


def in_autocast(*tensors):
    """Cast as autocast casts for a matmul. Inside an autograd Function autocast would act on forward only."""
    device = tensors[0].device.type
    if not torch.is_autocast_enabled(device):
        return tensors
    return [each if each is None else each.to(torch.get_autocast_dtype(device)) for each in tensors]
