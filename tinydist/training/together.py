"""The stages of a rank, and those of all others, step as one: one norm, one decision, one step.

    |g|^2 = sum over ranks, over buckets     |g of the bucket's shard|^2 / copies        every number of the model once

    a number of a shard is on    c of the tp ranks       c: all for a norm's weight, 1 for a part of a matrix
                                 replicate ranks         HSDP, or plain data parallel
                                 2 stages                if it is tied: the last stage's copy counts 0

One all-reduce over the world brings the square of the norm, and with it the loss, which only last stages know.
"""


class Together:
    """``zeros``: an ``OptimizerStates``, ``Gradients`` or ``Parameters`` of each stage of this rank. Seen by a
    ``LossScaler`` as one optimizer.
    """

    def __init__(self, zeros):
        self.zeros = list(zeros)

    @property
    def param_groups(self):
        return [group for zero in self.zeros for group in zero.param_groups]

    @property
    def gradient_factor(self):
        return self.zeros[0].gradient_factor

    @gradient_factor.setter
    def gradient_factor(self, factor):
        for zero in self.zeros:
            zero.gradient_factor = factor

    def square_of_norm(self):
        """This rank's summand, of gradients as they are."""
        return sum(zero.square_of_norm() for zero in self.zeros)

    def clip(self, norm, max_norm):
        """The gradients, of which all have the norm ``norm``."""
        factor = (float(max_norm) / (norm + 1e-6)).clamp(max=1.0)  # as torch
        for zero in self.zeros:
            zero.stepper.multiply(factor)

    def step(self):
        for zero in self.zeros:
            zero.step()

    def zero_grad(self):
        for zero in self.zeros:
            zero.zero_grad()

    def set_lr(self, lr):
        for zero in self.zeros:
            for group in zero.optimizer.param_groups:
                group["lr"] = lr
