"""Wrong answers to the exercise of 15b_profile_and_forecast: the property that rejects each, and what it is told."""

import torch
import torch.distributed as dist
from lab.registered import collection, solved

WRONG_ANSWERS, wrong = collection()


@wrong("faster_step", "values", "None")
def does_nothing(weights, batches):
    pass


@wrong("faster_step", "values", "nobody sent anything")
def sends_nothing(*arguments):
    return solved("faster_step", "if last:", "if False:")(*arguments)


@wrong("faster_step", "bytes", "bytes")
def twice(*arguments):
    solved("faster_step")(*arguments)
    return solved("faster_step")(*arguments)


@wrong("faster_step", "time", "before backward ends")
def in_one_message(weights, batches):
    """The fastest that I know without overlap: one message, and no gradient of the input."""
    ranks, loss = dist.get_world_size(), torch.zeros(1)
    gradients = [torch.zeros_like(weight) for weight in weights]
    for batch in batches:
        inputs = [batch]
        for weight in weights:
            inputs.append(torch.relu(inputs[-1] @ weight))
        loss += inputs[-1].square().mean() / len(batches)
        error = inputs[-1] * (2 / inputs[-1].numel() / len(batches))
        for layer in reversed(range(len(weights))):
            error = error * (inputs[layer + 1] > 0)
            gradients[layer] += inputs[layer].T @ error
            if layer:
                error = error @ weights[layer].T
    flat = torch.cat([loss, *(gradient.view(-1) for gradient in gradients)]) / ranks
    dist.all_reduce(flat)
    loss, *means = flat.split([1, *(weight.numel() for weight in weights)])
    return loss[0], [mean.view_as(weight) for mean, weight in zip(means, weights)]


@wrong("faster_step", "values", "the loss")
def the_last_loss(*arguments):
    return solved("faster_step", "        loss += inputs", "        loss = inputs")(*arguments)
