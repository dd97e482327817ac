"""A tiny model, its batches, and its training in one process: what every distributed run must equal."""

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn

WIDTH, HIDDEN, OUT, ROWS = 8, 16, 8, 8  # rows of the global batch


def tiny_mlp():
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Linear(WIDTH, HIDDEN), nn.Tanh(), nn.Linear(HIDDEN, HIDDEN), nn.Tanh(), nn.Linear(HIDDEN, OUT)
    )


def global_batch(step, rows=ROWS):
    generator = torch.Generator().manual_seed(step)
    return torch.randn(rows, WIDTH, generator=generator), torch.randn(rows, OUT, generator=generator)


def my_rows(batch, mesh=None):
    """This rank's share of a global batch: among all ranks, or along a mesh axis."""
    count, index = (mesh.size(), mesh.get_local_rank()) if mesh else (dist.get_world_size(), dist.get_rank())
    return [tensor.chunk(count)[index] for tensor in batch]


def sgd(parameters):
    return torch.optim.SGD(parameters, lr=0.2, momentum=0.9)


def train(model, optimizer, share=my_rows, steps=3, rows=ROWS):
    """The weights after some steps on the rows that ``share`` picks of each global batch."""
    for step in range(steps):
        inputs, targets = share(global_batch(step, rows))
        optimizer.zero_grad()
        F.mse_loss(model(inputs), targets).backward()
        optimizer.step()
    return weights(model)


def train_in_one_process(model=None, optimizer=sgd, **options):
    """The reference: the same training on whole batches."""
    model = model or tiny_mlp()
    return train(model, optimizer(model.parameters()), share=lambda batch: batch, **options)


def weights(model):
    """Name -> whole parameter, without the names that wrappers add."""
    found = {}
    for name, parameter in model.named_parameters():
        whole = parameter.full_tensor() if hasattr(parameter, "full_tensor") else parameter
        name = name.replace("_checkpoint_wrapped_module.", "").removeprefix("module.")
        found[name] = whole.detach().clone()
    return found


def gradients(model):
    return {name: parameter.grad.clone() for name, parameter in model.named_parameters()}


def assert_every_rank_has(expected, results, atol=1e-6):
    for rank, found in enumerate(results):
        torch.testing.assert_close(
            found, expected, rtol=0, atol=atol, msg=lambda text, rank=rank: f"on rank {rank}: {text}"
        )
