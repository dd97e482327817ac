"""TF32: tensor cores round matmul inputs to 10 mantissa bits and accumulate in fp32. Tensors stay float32.

    torch.set_float32_matmul_precision("high")         the switch: on a GPU it changes results and time,
                                                       in virtual time the rate is that of tf32; a CPU's results stay
    with tf32(): ...                                   here: results are rounded alike on any device

    a fp32 --round--> 10 bits --.
                                 product, accumulated in fp32 --> fp32         an error of 2^-11 in each factor
    b fp32 --round--> 10 bits --'

On an A100 156 TFLOP/s instead of 19.5, on an H100 494.5 instead of 67, for a line; half of bf16's, whose factors have 7
bits. Forward and backward both. A device without it (V100, CPUs) computes in float32 all the same.

Sources: NVIDIA A100 Tensor Core GPU Architecture, 2020; torch.set_float32_matmul_precision.
"""

import torch
from torch._subclasses import FakeTensor
from torch.utils._python_dispatch import TorchDispatchMode

from ..annotate import products_in_tf32
from ..torch_internals import unobserved
from .rounding import round_to

aten = torch.ops.aten
FACTORS = {aten.mm: (0, 1), aten.bmm: (0, 1), aten.addmm: (1, 2), aten.baddbmm: (1, 2)}  # which arguments


class tf32(TorchDispatchMode):
    """``with tf32():`` float32 matmuls round their inputs. Fused attention is not rounded."""

    def __enter__(self):
        self.rate = products_in_tf32()
        self.rate.__enter__()
        return super().__enter__()

    def __exit__(self, *error):
        super().__exit__(*error)
        self.rate.__exit__(*error)

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        if places := FACTORS.get(func.overloadpacket):
            with unobserved():  # it is the tensor core that rounds, in no time
                args = [rounded(each) if place in places else each for place, each in enumerate(args)]
        return func(*args, **(kwargs or {}))


def rounded(factor):
    """Fake tensors have nothing to round."""
    stays = factor.dtype != torch.float32 or isinstance(factor, FakeTensor)
    return factor if stays else round_to(factor, "tf32")
