"""Valid calls of ``tinydist.compilers``."""

import torch
from nonsense.calls import Call

from tinydist import compilers
from tinydist.compilers import Buffer, Program, capture


def chain(x):
    return torch.tanh(2 * x).sum()


def buffers():
    return dict(buffers=[Buffer(8, 0, 1), Buffer(16, 1, 2)])


CALLS = {
    "capture": Call(lambda function, x: len(capture(function, x).nodes), lambda: dict(function=chain, x=torch.ones(3))),
    "with_gradients": Call(
        lambda function: compilers.with_gradients(function)(torch.ones(3)), lambda: dict(function=chain), signed=True
    ),
    "fuse": Call(lambda graph: len(compilers.fuse(graph)), lambda: dict(graph=capture(chain, torch.ones(3)))),
    "Buffer": Call(Buffer, lambda: dict(nbytes=8, first=0, last=1)),
    "greedy_by_size": Call(compilers.greedy_by_size, buffers),
    "most_alive": Call(compilers.most_alive, buffers),
    "side_by_side": Call(compilers.side_by_side, buffers),
    "Program": Call(
        lambda x, **given: Program(capture(chain, torch.ones(3)), **given)(x),
        lambda: dict(x=torch.ones(3), backend="torch", plan="reuse"),
        signed=True,
    ),
}
REASONS = {}
