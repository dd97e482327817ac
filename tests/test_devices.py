"""What a technique sends and holds is on the device of the model: a step of each on fake tensors of a GPU.

A torch that is built without CUDA cannot run backward on fake CUDA tensors. One device of its own it lets Python
register, "gpu" here. It stays registered, so all of this runs in a process of its own.
"""

import json
from functools import partial

import pytest
import torch
import torch.distributed as dist
import torch.nn.functional as F
from warm import told_by

import tinydist
from tinydist.checkpoint.save_load import gathered, sharded
from tinydist.collectives import doubling, halving, ring, star, tree
from tinydist.data_parallel import DDP, DataParallel, average_each, average_flat, hooks, sample_weight
from tinydist.model import GPT, GPTConfig
from tinydist.pipeline_parallel import Worker, make_schedule
from tinydist.pipeline_parallel.stages import cut, evenly, layers_of
from tinydist.pipeline_parallel.tied_weights import sum_tied_gradients
from tinydist.precision import Kahan, LossScaler, MasterWeights
from tinydist.simulator.process_group import SimulatedProcessGroup
from tinydist.simulator.self_test import before_first_launch
from tinydist.zero import ZeRO1, ZeRO2, ZeRO3

RANKS, TINY = 2, GPTConfig(vocab_size=32, context=8, layers=2, heads=2, dim=16)


def model():
    with torch.device("gpu"):
        return GPT(TINY)


def tokens(rows=2):
    return torch.zeros(rows, TINY.context, dtype=torch.long, device="gpu")


def logits_loss(logits, targets):
    return F.cross_entropy(logits.flatten(0, 1), targets.flatten())


def plainly(average):
    gpt = model()
    gpt.loss(tokens(), tokens()).backward()
    average(gpt.parameters())


def ddp(**options):
    wrapped = DDP(model(), **options)
    optimizer = torch.optim.AdamW(wrapped.parameters())
    logits_loss(wrapped(tokens()), tokens()).backward()
    optimizer.step()


def replicated():
    gpt = model()
    wrapped = DataParallel(gpt)
    output = wrapped(tokens(4))
    (logits_loss(output, tokens(4)) if wrapped.is_root else output.sum()).backward()


def zero(stage, **options):
    gpt = model()
    sharded_optimizer = stage(gpt, torch.optim.AdamW, foreach=False, **options)
    gpt.loss(tokens(), tokens()).backward()
    sharded_optimizer.clip_grad_norm_(1.0)
    sharded_optimizer.step()
    whole = gathered(sharded_optimizer)
    assert {entry["vectors"]["weight"].device.type for entry in whole["parameters"].values()} == {"gpu"}
    sharded(sharded_optimizer)


def in_half_precision(kind):
    gpt = model().to(torch.bfloat16)
    optimizer = kind(gpt.parameters(), torch.optim.AdamW, foreach=False)
    gpt.loss(tokens(), tokens()).backward()
    average_flat(gpt.parameters())
    optimizer.clip_grad_norm_(1.0)
    optimizer.step()


def scaled():
    gpt, scaler = model(), LossScaler()
    optimizer = torch.optim.AdamW(gpt.parameters())
    scaler.scale(gpt.loss(tokens(), tokens())).backward()
    scaler.step(optimizer)


def reading(program):
    """``program`` goes on with a number that all ranks have reduced: fake ranks cannot."""

    def until_it_reads():
        with pytest.raises(RuntimeError, match="needs the values of a tensor"):
            program()

    return until_it_reads


def pipelined(name):
    schedule, gpt = make_schedule(name, RANKS, 4), model()
    layers = layers_of(gpt)
    cuts = cut(layers, evenly(layers, schedule.stages))
    stages = {stage: cuts[stage] for stage in schedule.stages_of(dist.get_rank())}
    between = torch.empty(1, TINY.context, TINY.dim, device="meta")
    Worker(schedule, stages, between, logits_loss).step(tokens(4), tokens(4))
    sum_tied_gradients(gpt.head.weight, [0, RANKS - 1])


def all_reduced():
    for algorithm in (ring, star, tree, halving, doubling):
        algorithm.all_reduce(torch.ones(7, device="gpu"))


PROGRAMS = {
    "average_each": partial(plainly, average_each),
    "average_flat": partial(plainly, average_flat),
    "DDP": ddp,
    "DDP that looks for the unused": reading(partial(ddp, find_unused_parameters=True)),
    "sample_weight": reading(partial(sample_weight, 3)),
    "loss scaler": reading(scaled),
    "DDP, compressed": partial(ddp, hook=hooks.compressed()),
    "DataParallel": replicated,
    "ZeRO 1": partial(zero, ZeRO1),
    "ZeRO 2": partial(zero, ZeRO2),
    "ZeRO 3": partial(zero, ZeRO3, units=lambda module: type(module).__name__ == "Block"),
    "master weights": partial(in_half_precision, MasterWeights),
    "Kahan summation": partial(in_half_precision, Kahan),
    "GPipe": partial(pipelined, "GPipe"),
    "1F1B": partial(pipelined, "1F1B"),
    "ZB-H1": partial(pipelined, "ZB-H1"),
    "collectives": all_reduced,
}


def devices_of_all():
    """In a process of its own: prints, for each program, the devices of what was sent, or its error."""
    from torch.utils.backend_registration import _DummyBackendModule, _setup_privateuseone_for_python_backend

    class NoGPU(_DummyBackendModule):
        def is_available(self):  # so that nothing real is put on it
            return False

    _setup_privateuseone_for_python_backend("gpu", backend_module=NoGPU())
    before_first_launch()  # whose tensors are on the CPU
    handle, found = SimulatedProcessGroup._handle, set()

    def noted(self, event, tensors, asynchronous, inputs=()):
        found.update(tensor.device.type for tensor in flat([tensors, inputs]))
        return handle(self, event, tensors, asynchronous, inputs)

    SimulatedProcessGroup._handle = noted
    SimulatedProcessGroup._device_types = [torch.device("gpu")]  # NCCL's groups take tensors of GPUs alone
    said = {}
    for name, program in PROGRAMS.items():
        found.clear()
        try:
            tinydist.launch(program, RANKS, fake=True, observe=False)
            said[name] = sorted(found)
        except Exception as error:
            said[name] = f"{type(error).__name__}: {error}"
    print(json.dumps(said))


def flat(values):
    return [values] if isinstance(values, torch.Tensor) else [each for value in values for each in flat(value)]


@pytest.fixture(scope="module")
def devices():
    return json.loads(told_by(__file__).splitlines()[-1])


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_step_sends_tensors_of_the_models_device_alone(name, devices):
    assert devices[name] == ["gpu"]


if __name__ == "__main__":
    devices_of_all()
