"""Wrong answers to the exercise of 15b_profile_and_forecast: the property that rejects each, and what it is told."""

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


@wrong("faster_step", "time", "times as long")
def one_after_the_other(*arguments):
    waits = "    for work in works:\n        work.wait()\n"
    blocking = "    for tensor in [*gradients, loss]:\n        dist.barrier()\n        dist.all_reduce(tensor)\n"
    return solved("faster_step", "if last:", "if False:", waits, blocking, dist=dist)(*arguments)


@wrong("faster_step", "values", "the loss")
def the_last_loss(*arguments):
    return solved("faster_step", "        loss += inputs", "        loss = inputs")(*arguments)
