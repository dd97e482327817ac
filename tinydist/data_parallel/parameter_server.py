"""The parameter server: one rank holds the model and runs the optimizer; the others, the workers, compute gradients.

    server     sends parameters to each worker  ...  receives and adds their gradients, steps
    worker     receives them, backward, sends its gradient

All of it passes the server's one link: 2 S bytes for each of w workers, one after another.

    2 w (alpha + S/beta) a step

Source: Li et al., Scaling Distributed Machine Learning with the Parameter Server, 2014; here synchronous.
"""

import torch
import torch.distributed as dist
from torch.nn.utils import parameters_to_vector, vector_to_parameters


def serve(model, optimizer, steps, group=None):
    """On rank 0 of the group: ``steps`` steps, each with the mean of all workers' gradients."""
    workers = range(1, dist.get_world_size(group))
    if not workers:
        raise ValueError("parameter server: it needs a server and a worker, but the group has one rank")
    for _ in range(steps):
        weights = parameters_to_vector(model.parameters()).detach()
        for worker in workers:
            dist.send(weights, group=group, group_dst=worker)
        total, gradient = torch.zeros_like(weights), torch.empty_like(weights)
        for worker in workers:
            dist.recv(gradient, group=group, group_src=worker)
            total += gradient
        write_gradients(model, total / len(workers))
        optimizer.step()


def work(model, loss_of, steps, group=None):
    """On every other rank: ``loss_of(model, step)`` is its loss."""
    weights = parameters_to_vector(model.parameters()).detach().clone()
    for step in range(steps):
        dist.recv(weights, group=group, group_src=0)
        vector_to_parameters(weights, model.parameters())
        gradients = torch.autograd.grad(loss_of(model, step), list(model.parameters()))
        dist.send(torch.cat([gradient.flatten() for gradient in gradients]), group=group, group_dst=0)


def write_gradients(model, flat):
    for parameter, gradient in zip(model.parameters(), flat.split([p.numel() for p in model.parameters()])):
        parameter.grad = gradient.view_as(parameter)
