"""Functions for all tests of compilers, each with its inputs."""

import torch
import torch.nn.functional as F
from hypothesis import strategies as st


def chain(x, b):
    return torch.tanh(2 * x + b) * x + 1


def relu_sum(x, b):
    return torch.relu(2 * x + b).sum()


def softmax(x, b):
    return torch.softmax(x + b, -1)


def layer_norm(x, w, b):
    return F.layer_norm(x, w.shape, w, b)


def mlp(x, w, b, v):
    return F.gelu(F.linear(x, w, b)) @ v


def gated(x, w, v):
    return F.silu(x @ w) * (x @ v)


def attention(x, w, v):
    (B, T, D), H = x.shape, 2
    q, k, values = (x @ w).view(B, T, 3, H, D // H).permute(2, 0, 3, 1, 4)
    weights = torch.softmax(q @ k.mT / 2, -1)
    return (weights @ values).transpose(1, 2).reshape(B, T, D) @ v


def masked(x, b):
    return torch.where(x > b, x, x.exp()).amax(1), F.relu(x, inplace=False) - b


SHAPES = {
    chain: [(3, 5), (5,)],
    relu_sum: [(3, 5), (5,)],
    softmax: [(2, 3, 17), (3, 1)],
    layer_norm: [(2, 5, 24), (24,), (24,)],
    mlp: [(2, 5, 8), (16, 8), (16,), (16, 8)],
    gated: [(6, 8), (8, 12), (8, 12)],
    attention: [(2, 6, 8), (8, 24), (8, 8)],
    masked: [(7, 9), (9,)],
}
DIFFERENTIABLE = [each for each in SHAPES if each is not masked]

SHAPES_OF_PROGRAMS = (4, 4), (4, 1), (4,), ()
STEPS = [  # each result broadcasts to [4, 4]; continuous, as other last bits must not choose another branch
    lambda a, b: a + b,
    lambda a, b: torch.tanh(a.expand(4, 4)) * b,
    lambda a, b: torch.tanh(a.expand(4, 4) + b.expand(4, 4).t()),
    lambda a, b: torch.where(a > b, a, b),
    lambda a, b: a.expand(4, 4).t(),
    lambda a, b: a.expand(4, 4)[1:2],
    lambda a, b: a.expand(2, 4, 4).reshape(2, 16)[0].view(4, 4),
    lambda a, b: torch.tanh(a).expand(4, 4) @ b.expand(4, 4),
    lambda a, b: a.expand(4, 4) @ torch.tanh(a).expand(4, 4),
    lambda a, b: a.expand(4, 4).sum(0),
    lambda a, b: a.expand(4, 4).mean(1, keepdim=True),
    lambda a, b: a.expand(4, 4).amax(),
    lambda a, b: torch.softmax(a.expand(4, 4), -1),
]


def program_of(steps):
    """Each step takes two of the last four tensors: what is needed for a while only has a place to share."""

    def function(*inputs):
        found = [*inputs]
        for one, other, step in steps:
            found.append(step(found[one], found[other]))
        return found[-1], found[len(found) // 2]

    return function


PLACES = st.integers(-4, -1)
PROGRAMS = st.lists(st.tuples(PLACES, PLACES, st.sampled_from(STEPS)), min_size=1, max_size=12).map(program_of)


def inputs_of(function, dtype=torch.float64):
    generator, shapes = torch.Generator().manual_seed(0), SHAPES.get(function, SHAPES_OF_PROGRAMS)
    return [torch.randn(shape, generator=generator, dtype=torch.float64).to(dtype) for shape in shapes]


def listed(results):
    return list(results) if isinstance(results, tuple) else [results]
