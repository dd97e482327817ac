"""What pointwise operators are made of: each is an expression of a few primitives, which each target can write.

    tanh(x) = 1 - 2 / (exp(2 x) + 1)            LLVM has no tanh that is a vector's, and Triton none at all

``on`` is the target (llvm_kernel.py, triton_kernel.py). It has add, sub, mul, div, maximum, minimum, exp, log, sqrt,
erf, compare, select and constant: what stands here holds for both.
"""

import torch

aten = torch.ops.aten


def tanh(on, x):
    two = on.constant(2.0)
    return on.sub(on.constant(1.0), on.div(two, on.add(on.exp(on.mul(two, x)), on.constant(1.0))))


def sigmoid(on, x):
    one = on.constant(1.0)
    return on.div(one, on.add(one, on.exp(on.sub(on.constant(0.0), x))))


def primitive(name):
    return lambda on, *values: getattr(on, name)(*values)


def comparison(sign):
    return lambda on, a, b: on.compare(sign, a, b)


POINTWISE = {
    aten.add.Tensor: primitive("add"),
    aten.sub.Tensor: primitive("sub"),
    aten.mul.Tensor: primitive("mul"),
    aten.div.Tensor: primitive("div"),
    aten.maximum.default: primitive("maximum"),
    aten.minimum.default: primitive("minimum"),
    aten.exp.default: primitive("exp"),
    aten.log.default: primitive("log"),
    aten.sqrt.default: primitive("sqrt"),
    aten.erf.default: primitive("erf"),
    aten.where.self: primitive("select"),
    aten.neg.default: lambda on, x: on.sub(on.constant(0.0), x),
    aten.relu.default: lambda on, x: on.maximum(x, on.constant(0.0)),
    aten.rsqrt.default: lambda on, x: on.div(on.constant(1.0), on.sqrt(x)),
    aten.reciprocal.default: lambda on, x: on.div(on.constant(1.0), x),
    aten.tanh.default: tanh,
    aten.sigmoid.default: sigmoid,
    aten.clone.default: lambda on, x: x,
    aten.full.default: lambda on, shape, number: number,
} | {
    getattr(getattr(aten, name), overload): comparison(sign)
    for name, sign in (("gt", ">"), ("ge", ">="), ("lt", "<"), ("le", "<="))
    for overload in ("Scalar", "Tensor")
}
REDUCTIONS = {aten.sum.dim_IntList: "add", aten.amax.default: "maximum"}  # -> the primitive that joins two
BEGIN = {"add": 0.0, "maximum": float("-inf")}  # what changes nothing
FLOATS = {torch.float32, torch.float64}
OPTIONS = {"memory_format", "dtype", "device", "pin_memory"}  # change no number


def is_pointwise(node):
    if node.target not in POINTWISE or set(node.kwargs) - OPTIONS:
        return False
    inputs = [each.meta["val"] for each in node.all_input_nodes]
    floats = {each.dtype for each in [*inputs, node.meta["val"]]} - {torch.bool}
    return len(floats) == 1 and floats < FLOATS | {None}


def reduced_dims(node):
    """How many of the last dims a reduction joins to 1; 0: it is none that a kernel can do."""
    if node.target not in REDUCTIONS or node.kwargs or len(node.args) != 3 or not node.args[2]:
        return 0
    before = node.args[0].meta["val"]
    dims = {dim % before.ndim for dim in node.args[1]}
    last = set(range(before.ndim - len(dims), before.ndim))
    return len(dims) if dims == last and before.dtype in FLOATS else 0
