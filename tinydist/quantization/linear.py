"""A linear layer whose weights stay in blocks; and a model of such layers.

    y = x w^T        x [..., in], w [out, in] in blocks of 32 or 256 of a row

    a block of w and the numbers of x that it meets, in Q8_0 too:   sum of d_w q_w d_x q_x = d_w d_x (sum of q_w q_x)

The sum in brackets is of integers. Decoding one token reads each weight once and multiplies it once, so it is bound by
bytes, and blocks have fewer: matvec.py does the same without ever writing a weight in fp32. What is here is the meaning
of it, in plain torch: weights are dequantized for a product and forgotten.
"""

import torch.nn.functional as F
from torch import nn

from ..rules import each_of, floats, one_of, validate
from .blocks import FORMATS, Blocks, quantize


@validate(x=floats, weight=Blocks)
def matmul(x, weight):
    """x w^T: [..., in] and blocks [out, in] to [..., out]; x is rounded to Q8_0 first.

    So does ggml with Q8_0, Q5_0 and Q4_0. Elsewhere it rounds x otherwise: with blocks of 256 one scale serves 256."""
    if len(weight.shape) != 2 or x.ndim == 0 or x.shape[-1] != weight.shape[1]:
        raise ValueError(f"matmul: expected [..., in] and [out, in], got {list(x.shape)} and {list(weight.shape)}")
    return F.linear(quantize(x, "Q8_0").dequantize(), weight.dequantize()).to(x.dtype)


@validate(linear=nn.Linear, format=one_of(FORMATS))
class BlockLinear(nn.Module):
    """``nn.Linear`` for inference. The weight is a buffer of bytes [out, bytes of a row]."""

    def __init__(self, linear, format="Q4_0", multiply=matmul):
        super().__init__()
        blocks = quantize(linear.weight, format)
        self.register_buffer("data", blocks.data)
        self.format, self.bias, self.multiply = blocks.format, linear.bias, multiply
        self.out_features, self.in_features = blocks.shape

    @property
    def weight(self):
        return Blocks(self.data, self.format)

    def forward(self, x):
        y = self.multiply(x, self.weight)
        return y if self.bias is None else y + self.bias

    def extra_repr(self):
        return f"in_features={self.in_features}, out_features={self.out_features}, format={self.format}"


@validate(model=nn.Module, format=one_of(FORMATS), keep=each_of(str, 0))
def in_blocks(model, format="Q4_0", keep=("head",), multiply=matmul):
    """Replace, in place, each ``nn.Linear`` inside ``model`` by a ``BlockLinear``; those named in ``keep`` stay.

    Returns the model. Raises ``ValueError``, and changes nothing, where a block does not divide a layer's inputs."""
    if isinstance(model, nn.Linear):
        raise ValueError("in_blocks: model must have its nn.Linear inside: use BlockLinear(model)")
    linear = {
        name: layer
        for name, layer in model.named_modules(remove_duplicate=False)
        if isinstance(layer, nn.Linear) and name not in keep
    }
    of = FORMATS[format].weights
    for name, layer in linear.items():
        if layer.in_features % of:
            rule = f"must be divisible by {of}, the weights of a block of {format}, or the layer named in keep"
            raise ValueError(f"in_blocks: {name}.in_features ({layer.in_features}) {rule}")
    made = {layer: BlockLinear(layer, format, multiply) for layer in linear.values()}  # a shared one stays shared
    for name, layer in linear.items():
        parent, _, own = name.rpartition(".")
        setattr(model.get_submodule(parent), own, made[layer])
    return model
