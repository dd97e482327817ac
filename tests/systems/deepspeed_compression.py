"""DeepSpeed 0.19.6's compressed all-reduce and optimizers beside ours, on two gloo processes: where are they the same?

    PYTHONPATH=.venv-systems/deepspeed-0.19.6:. python tests/systems/deepspeed_compression.py

It is the last version that has them. What is patched, and why; nothing of it is arithmetic:

    build_shm_op      returns nothing: DeepSpeed would compile an all-reduce in shared memory, which none of it needs
    PackbitsBuilder   NumPy packs the bits, as the packer of the CPU would be compiled, too
    all_gather        a scale of shape [] is gathered as [1], as gloo wants it

Its first ``step()`` makes buffers and moves nothing, but counts: so its warm-up is one step longer than ours, and the
count of 0/1 Adam, whose schedule depends on multiples, is put back to 0. In 1-bit LAMB the padding keeps what the
last step left there, and ours begins with zeros: sizes divide, but in the case that shows the difference.
"""

import json
import os
import sys
from types import SimpleNamespace

import numpy as np
import torch
import torch.distributed as dist

import tinydist
from tinydist import compression

STEPS, WARM = 50, 10
OPTIONS = dict(lr=0.01, weight_decay=0.1)
INTERVALS = dict(var_update_scaler=4, local_step_scaler=5, local_step_clipper=4)
DIVIDING, PADDED = (35, 13), (35, 14)  # numbers of two parameters: together 48, a multiple of 16, and 49


class Packer:
    def packbits(self, numbers, size, rank):
        return torch.from_numpy(np.packbits(numbers.sign().add(1).bool().numpy()))

    def unpackbits(self, packed, size, rank):
        return torch.from_numpy(np.unpackbits(packed.numpy())).float().mul_(2).sub_(1)


def begin():
    """A world of DeepSpeed's, with its patches."""
    import deepspeed
    from deepspeed.runtime.comm import compressed

    assert deepspeed.__version__.startswith("0.19.6"), deepspeed.__version__
    sys.modules["deepspeed.comm.torch"].build_shm_op = lambda: None
    compressed.PackbitsBuilder = lambda: SimpleNamespace(load=Packer)
    gather = compressed.dist.all_gather

    def all_gather(parts, tensor, group=None):
        return gather(parts, tensor.reshape(parts[0].shape), group=group)

    compressed.dist = SimpleNamespace(**vars(compressed.dist) | {"all_gather": all_gather})
    deepspeed.comm.init_distributed("gloo", verbose=False)


def draws():
    return torch.Generator().manual_seed(dist.get_rank())


def all_reduce():
    """Is each result the same, and each error, for sizes that are padded and those that are not?"""
    from deepspeed.runtime.comm.compressed import CompressedBackend

    theirs, draw, same = CompressedBackend(), draws(), []
    for size in (5, 64, 1000):
        ours = compression.error_buffers(size)
        errors = [each.clone() for each in ours]
        for _ in range(5):
            tensor = torch.randn(size, generator=draw)
            right = theirs.compressed_allreduce(tensor.clone(), *errors, dist.get_rank())
            compression.compressed_all_reduce(tensor, *ours)
            same.append(all(map(torch.equal, (tensor, *ours), (right, *errors))))
    return same


def optimizers(name):
    """Of parameters: DeepSpeed's of that name, and ours."""
    from deepspeed.runtime.fp16.onebit.adam import OnebitAdam
    from deepspeed.runtime.fp16.onebit.lamb import OnebitLamb
    from deepspeed.runtime.fp16.onebit.zoadam import ZeroOneAdam

    engine = SimpleNamespace(local_rank=dist.get_rank(), mpu=None, enable_backward_allreduce=True)
    theirs = {"OneBitAdam": OnebitAdam, "OneBitLamb": OnebitLamb, "ZeroOneAdam": ZeroOneAdam}[name]
    if name == "ZeroOneAdam":  # counts from 0, and the switch comes one step after the one that it names
        warm, more = dict(var_freeze_step=2 * WARM - 1), INTERVALS
        ours = dict(var_freeze_step=2 * WARM)
    else:
        warm, ours, more = dict(freeze_step=WARM + 1), dict(freeze_step=WARM), {}
    return (
        lambda parameters: theirs(parameters, engine, comm_backend_name="compressed", **OPTIONS, **warm, **more),
        lambda parameters: getattr(compression, name)(parameters, **OPTIONS, **ours, **more),
        engine,
    )


def parameters(sizes):
    draw = torch.Generator().manual_seed(9)
    return [torch.nn.Parameter(torch.randn(size, generator=draw)) for size in sizes]


def steps(name, sizes):
    """Are all weights the same, in each of the steps?"""
    make_theirs, make_ours, engine = optimizers(name)
    theirs, ours, draw, same = parameters(sizes), parameters(sizes), draws(), []
    optimizer, own = make_theirs(theirs), make_ours(ours)
    for step in range(STEPS + 1):
        gradients = [torch.randn(size, generator=draw) for size in sizes]
        for parameter, gradient in zip(theirs, gradients):
            parameter.grad = gradient.clone()
            if engine.enable_backward_allreduce:
                dist.all_reduce(parameter.grad)
                parameter.grad /= dist.get_world_size()
        optimizer.step()
        if step == 0:
            assert all(map(torch.equal, theirs, ours)), "its first step has moved the weights"
            if name == "ZeroOneAdam":
                for parameter in theirs:
                    optimizer.state[parameter]["step"] = 0
            continue
        for parameter, gradient in zip(ours, gradients):
            parameter.grad = gradient
        own.step()
        same.append(all(map(torch.equal, theirs, ours)))
    assert not engine.enable_backward_allreduce or name == "ZeroOneAdam"
    return same


CASES = {
    "all_reduce": all_reduce,
    "OneBitAdam": lambda: steps("OneBitAdam", PADDED),
    "ZeroOneAdam": lambda: steps("ZeroOneAdam", PADDED),
    "OneBitLamb": lambda: steps("OneBitLamb", DIVIDING),
    "OneBitLamb, padded": lambda: steps("OneBitLamb", PADDED),
}


def all_cases():
    begin()
    return {name: case() for name, case in CASES.items()}


if __name__ == "__main__":
    os.environ["DS_ACCELERATOR"] = "cpu"
    print(json.dumps(tinydist.launch(all_cases, 2, backend="gloo", init=False, observe=False).results))
