"""Runs to draw: a star and a ring of messages, gradients reduced while others are computed, training steps."""

from functools import cache

import torch
import torch.distributed as dist
import torch.nn.functional as F

import tinydist
from tinydist.hardware import find_cluster
from tinydist.model import GPT

TWO_NODES = find_cluster("2 x 4").with_algorithm("ring")  # two levels: a sixth as many bytes across as inside


def star(numel=1_000_000):
    x, (rank, world) = torch.ones(numel), (dist.get_rank(), dist.get_world_size())
    if rank:
        dist.send(x, 0)
        dist.recv(x, 0)
        return
    for other in range(1, world):
        theirs = torch.empty(numel)
        dist.recv(theirs, other)
        x += theirs
    for other in range(1, world):
        dist.send(x, other)


def ring(numel=1_000_000):
    rank, world = dist.get_rank(), dist.get_world_size()
    pieces = list(torch.ones(numel).chunk(world))
    for step in range(2 * (world - 1)):
        give, take = (rank - step) % world, (rank - step - 1) % world
        piece = torch.empty_like(pieces[take])
        works = [dist.isend(pieces[give], (rank + 1) % world), dist.irecv(piece, (rank - 1) % world)]
        for work in works:
            work.wait()
        pieces[take] += piece


def overlap(layers=6, width=2048):
    x, works = torch.ones(512, width), []
    weights = [torch.ones(width, width) for _ in range(layers)]
    for weight in weights:
        gradient = x.T @ x
        x = x @ weight
        works.append(dist.all_reduce(gradient, async_op=True))
    for work in works:
        work.wait()


def training_step():
    model = GPT()
    optimizer = torch.optim.AdamW(model.parameters())
    tokens = torch.zeros(4, 64, dtype=torch.long)
    for _ in range(2):
        F.cross_entropy(model(tokens).flatten(0, 1), tokens.flatten()).backward()
        for parameter in model.parameters():
            dist.all_reduce(parameter.grad)
        optimizer.step()


PROGRAMS = {
    "star": (star, 4, {}),
    "ring": (ring, 8, {}),
    "overlap": (overlap, 4, {"fake": True}),
    "two nodes": (overlap, 8, {"fake": True, "cluster": TWO_NODES}),
    "many ranks": (ring, 20, {}),
    "training": (training_step, 2, {}),
    "alone": (training_step, 1, {}),
}


def launched(name):
    program, ranks, options = PROGRAMS[name]
    return tinydist.launch(program, ranks, **options)


run_of = cache(launched)  # for tests that only look at it
