"""What pointwise operators are made of: each is an expression of a few primitives, which each target can write.

    tanh(x) = 1 - 2 / (exp(2 x) + 1)      within 2 eps of its value; of small x it has fewer digits than torch's tanh

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


def overloads(name, kinds, expression):
    return {getattr(getattr(aten, name), kind): expression for kind in kinds}


BOTH = "Tensor", "Scalar"
SIGNS = {"gt": ">", "ge": ">=", "lt": "<", "le": "<=", "eq": "=="}
SELECTS = overloads("where", ("self", "ScalarOther", "ScalarSelf"), primitive("select"))  # they alone take a mask
POINTWISE = SELECTS | {
    aten.neg.default: lambda on, x: on.mul(on.constant(-1.0), x),  # of 0.0 it is -0.0, and 0.0 - 0.0 is not
    aten.relu.default: lambda on, x: on.maximum(x, on.constant(0.0)),
    aten.rsqrt.default: lambda on, x: on.div(on.constant(1.0), on.sqrt(x)),
    aten.reciprocal.default: lambda on, x: on.div(on.constant(1.0), x),
    aten.tanh.default: tanh,
    aten.sigmoid.default: sigmoid,
    aten.clone.default: lambda on, x: x,
    aten.full.default: lambda on, shape, number: number,
}
for name in ("add", "sub", "mul", "div"):
    POINTWISE |= overloads(name, BOTH, primitive(name))
for name in ("maximum", "minimum", "exp", "log", "sqrt", "erf"):
    POINTWISE |= overloads(name, ("default",), primitive(name))
for name, sign in SIGNS.items():
    POINTWISE |= overloads(name, BOTH, comparison(sign))
REDUCTIONS = {aten.sum.dim_IntList: "add", aten.amax.default: "maximum"}  # -> the primitive that joins two
BEGIN = {"add": 0.0, "maximum": float("-inf")}  # what changes nothing
FLOATS = {torch.float32, torch.float64}
OPTIONS = {"memory_format", "dtype", "device", "pin_memory"}  # change no number


def is_pointwise(node):
    if node.target not in POINTWISE or set(node.kwargs) - OPTIONS:
        return False
    masks = [each for each in node.all_input_nodes if each.meta["val"].dtype == torch.bool]
    selects = node.target in SELECTS and masks == [node.args[0]] and masks[0] not in node.args[1:]
    floats = dtypes_of_numbers(node)
    return len(floats) == 1 and floats <= FLOATS and (not masks or selects)


def dtypes_of_numbers(*nodes):
    """Of all that they read and give, masks aside."""
    return {each.meta["val"].dtype for node in nodes for each in (node, *node.all_input_nodes)} - {torch.bool}


def reduced_dims(node):
    """How many of the last dims a reduction joins to 1, along each row; 0: it is none that a kernel can do."""
    last, dims = ends_of_dims(node)
    return len(dims) if dims and last else 0


def summed_rows(node):
    """How many dims a row has, where a sum is over all rows; 0: it is none."""
    last, dims = ends_of_dims(node)
    total = dims and not last and node.target is aten.sum.dim_IntList
    return node.args[0].meta["val"].ndim - len(dims) if total else 0


def ends_of_dims(node):
    """(whether they are the last, the dims that it reduces); no dims if they are neither the first nor the last."""
    if node.target not in REDUCTIONS or node.kwargs or len(node.args) != 3 or not node.args[2]:
        return False, ()
    before = node.args[0].meta["val"]
    if not before.ndim:
        return False, ()
    dims, every = sorted(dim % before.ndim for dim in node.args[1]), list(range(before.ndim))
    ends = before.dtype in FLOATS and dims in (every[: len(dims)], every[-len(dims) :])
    return dims == every[-len(dims) :], dims if ends else ()
