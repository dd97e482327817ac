"""A self-test of the simulator with the installed torch, on the first launch: a collective, a group, messages."""

import warnings
from functools import cache

import torch
import torch.distributed as dist

from ..torch_versions import INSTALL, TESTED, untested
from .simulation import Simulation


@cache
def before_first_launch():
    """Raises ``RuntimeError`` if they do not; warns of a torch that is newer than any that was tested."""
    self_test()
    if untested(torch.__version__):
        warnings.warn(f"torch {torch.__version__} is newer than the tested versions: {TESTED}", stacklevel=3)


def self_test():
    """Takes a millisecond."""
    try:
        found = Simulation(2).run(speak)
    except Exception as error:
        raise RuntimeError(broken(f"{type(error).__name__}: {error}")) from error
    if found != [(3, 1), (3, 0)]:
        raise RuntimeError(broken(f"the sums and messages of two ranks are {found}, not [(3, 1), (3, 0)]"))


def speak():
    """1 + 2, and the rank of the other."""
    me = dist.get_rank()
    total, received = torch.tensor(me + 1), torch.tensor(-1)
    dist.all_reduce(total)
    pair = dist.new_group([0, 1])
    messages = [
        dist.P2POp(dist.isend, torch.tensor(me), 1 - me, pair),
        dist.P2POp(dist.irecv, received, 1 - me, pair),
    ]
    for work in dist.batch_isend_irecv(messages):
        work.wait()
    return total.item(), received.item()


def broken(how):
    return f"simulated ranks do not work with torch {torch.__version__} ({how}). {INSTALL}"
