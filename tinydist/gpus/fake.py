"""Forecasts: what is on a GPU is a fake tensor, and what is on the host has its data.

    host      tokens, indices, step counts, file contents     real
    modules   their parameters, wherever they are              fake, so that a model is not filled before it moves
    to        a copy of shape and dtype: the data stays behind
    GPU       activations, gradients, optimizer states         fake: no memory, no arithmetic
    back      a fake tensor on the host, whose numbers are not known (unknown.py)

So a program of any size takes seconds, and goes where its host data leads it.
"""

import math
import sys
import time
from contextlib import ExitStack, contextmanager

import torch
from torch._subclasses import FakeTensor
from torch.nn import Parameter

from ..simulator.call_sites import STDLIB, TINYDIST, TORCH
from ..torch_internals import fake_tensors_in_foreach
from ..tracing import observer
from .checkpoints import save_if_known
from .fake_ddp import FakeDDP
from .placement import META
from .rank_gpus import mine, of_thread
from .unknown import QUESTIONS, READS, Unknown, taken_to_be

FAKES_OWN = tuple(path + part for path in TORCH for part in ("_subclasses", "_prims", "_refs", "_decomp", "_meta_reg"))
FAKES_OWN += (observer.__file__,)  # C++ asks by way of it
CLOCKS = {name: getattr(time, name) for name in ("time", "perf_counter", "monotonic")}
NOT_THE_PROGRAMS = (*TORCH, TINYDIST, STDLIB)


class FakesFiles(dict):
    """File name -> is it of torch's implementation of fake tensors?"""

    def __missing__(self, name):
        self[name] = name.startswith(FAKES_OWN)
        return self[name]


of_fakes = FakesFiles()


@property
def fake_device(self):
    """Where the program has it; torch's own fakes are all on the host."""
    if self.fake_mode.in_kernel_invocation:
        return META
    if of_thread.gpus is None or of_fakes[sys._getframe(1).f_code.co_filename]:
        return self.fake_device
    return of_thread.gpus.placement.device_of(self)


def fake_parameter(cls, data=None, requires_grad=True):
    gpus = of_thread.gpus
    if gpus is not None and type(data) is torch.Tensor and not data.is_meta:
        data = gpus.fake.from_tensor(data.detach())
    return make_parameter(cls, data, requires_grad)


make_parameter = Parameter.__new__


# Clocks.


def virtual(name):
    """The clock ``name`` of module time: what the rank's GPU has taken, for the program and its libraries."""
    read, began = CLOCKS[name], CLOCKS[name]()

    def clock():
        caller = sys._getframe(1).f_code.co_filename
        if of_thread.gpus is None or caller.startswith(NOT_THE_PROGRAMS):
            return read()
        return began + mine().now()

    return clock


# Questions about numbers that are taken for granted.


def assuming(ask, answer):
    def asked(number):
        if isinstance(number, Unknown):
            mine().note(f"math.{ask.__name__}", f"taken to be {answer}")
            return answer
        return ask(number)

    return asked


@contextmanager
def forecasting(replaced):
    """``replaced``: install.py's."""
    with fake_tensors_in_foreach(), ExitStack() as stack:
        stack.enter_context(replaced(torch.Tensor, READS))
        stack.enter_context(replaced(FakeTensor, {"device": fake_device, "tolist": READS["tolist"]}))
        stack.enter_context(replaced(torch, {"save": save_if_known}))
        stack.enter_context(replaced(Parameter, {"__new__": fake_parameter}))
        stack.enter_context(replaced(time, {name: virtual(name) for name in CLOCKS}))
        stack.enter_context(
            replaced(math, {name: assuming(getattr(math, name), is_) for name, is_ in QUESTIONS.items()})
        )
        for where in (torch, torch.Tensor):
            asked = {name: taken_to_be(getattr(where, name), is_) for name, is_ in QUESTIONS.items()}
            stack.enter_context(replaced(where, asked))
        for where in (torch.nn.parallel, torch.nn.parallel.distributed):
            stack.enter_context(replaced(where, {"DistributedDataParallel": FakeDDP}))
        yield
