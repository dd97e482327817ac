"""Wrong answers to the exercises of 18_fewer_bytes: each with the property that rejects it, and what it is told."""

import torch
import torch.distributed as dist
from lab.registered import collection, solved

from tinydist import compression

WRONG_ANSWERS, wrong = collection()


@wrong("compress_rows", "runs", "NoneType")
def compresses_nothing(x, error):
    pass


@wrong("compress_rows", "values", "the bits of step 0")
def bytes_of_signs(x, error):
    _, scales = solved("compress_rows")(x, error)
    return (x >= 0).to(torch.uint8), scales


@wrong("compress_rows", "values", "the error after step 0")
def returns_the_error_alone(x, error):
    return solved("compress_rows")(x, error.clone())


@wrong("one_bit_mean", "own work", "tinydist.compression")
def librarys_mean(x, weight, worker_error, server_error, group):
    compression.compressed_all_reduce(x, worker_error, server_error, group)
    return x


@wrong("one_bit_mean", "values", "the mean of step 0")
def sends_nothing(x, weight, worker_error, server_error, group):
    return x


@wrong("mended_one_bit_adam", "own work", "tinydist.compression")
def librarys_optimizer(w, gradients, freeze):
    w.requires_grad_()
    optimizer = compression.OneBitAdam([w], lr=0.01, freeze_step=freeze)
    for gradient in gradients:
        w.grad = gradient
        optimizer.step()
    return w.detach()


@wrong("mended_one_bit_adam", "values", "the weights")
def never_compresses(w, gradients, freeze):
    return solved("mended_one_bit_adam")(w, gradients, len(gradients))


@wrong("pays_below", "values", "None")
def says_nothing(*arguments):
    pass


@wrong("pays_below", "values", "the gain at half of it")
def gain_of_a_step(*arguments):
    bandwidth, _ = solved("pays_below")(*arguments)
    return bandwidth, solved("pays_below")(*arguments[:-1], 0.3)[1]


@wrong("sharded_lamb", "own work", "tinydist.compression")
def librarys_lamb(weights, gradients, states, step, lr, decay):
    optimizer = compression.Lamb(weights, lr=lr, weight_decay=decay)
    for w, gradient in zip(weights, gradients):
        w.grad = gradient
    optimizer.step()


@wrong("sharded_lamb", "values", "the shard of tensor 0 after step 1")
def steps_as_adam(weights, gradients, states, step, lr, decay):
    for w, gradient, (m, v) in zip(weights, gradients, states):
        m.mul_(0.9).add_(gradient, alpha=0.1)
        v.mul_(0.999).addcmul_(gradient, gradient, value=0.001)
        w -= lr * m / (1 - 0.9**step) / ((v / (1 - 0.999**step)).sqrt() + 1e-6)


@wrong("sharded_lamb", "calls", "all-reduces, where")
def also_all_reduces_gradients(weights, gradients, states, step, lr, decay):
    for gradient in gradients:
        dist.all_reduce(torch.zeros(8 * len(gradients)))
        gradient += 0
    solved("sharded_lamb")(weights, gradients, states, step, lr, decay)
