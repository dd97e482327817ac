"""The step: what is done with the shards of all buckets, where they are. (At another home: offload.py.)"""

import torch

from .shards import as_precise


class Stepper:
    """``optimizer`` steps on the masters of ``buckets``."""

    def __init__(self, optimizer, buckets):
        self.optimizer, self.buckets = optimizer, buckets

    def with_gradients(self):
        """Tensors that have the gradients of this rank's shards, as those of which optimizers know."""
        found = [bucket.grad.detach() for bucket in self.buckets if bucket.grad is not None]
        for tensor in found:
            tensor.grad = tensor.detach()
        return found

    def square_of_norm(self):
        """Of this rank's gradients."""
        norms = [torch.linalg.vector_norm(as_precise(bucket.grad)) for bucket in self.buckets]
        return sum(bucket.counts * norm.square() for bucket, norm in zip(self.buckets, norms))

    def multiply(self, factor):
        """In fp32: what a scale has kept from vanishing in 16 bits would vanish in this product."""
        for bucket in self.buckets:
            bucket.grad = as_precise(bucket.grad)
        torch._foreach_mul_([bucket.grad for bucket in self.buckets], factor)

    def step(self):
        """Once, on all of them: so torch's optimizers may work on many tensors at a time."""
        self.step_on(self.buckets)

    def step_on(self, buckets):
        for bucket in buckets:
            bucket.master.grad = as_precise(bucket.grad)
        self.optimizer.step()
        for bucket in buckets:
            bucket.master.grad = None

    # What is saved and loaded (checkpoint.py).

    def kept(self, bucket):
        """This rank's part of the master weight, and of the optimizer's states; and numbers."""
        if bucket not in self.buckets:  # frozen
            return {"weight": bucket.mine}, {}
        state = self.optimizer.state.get(bucket.master, {})
        vectors = {key: value for key, value in state.items() if value.shape == bucket.master.shape}
        return {"weight": bucket.master} | vectors, {key: state[key] for key in state.keys() - vectors.keys()}

    def restore(self, loaded):
        """The reverse: bucket -> (vectors, scalars)."""
        for bucket, (vectors, scalars) in loaded.items():
            if bucket in self.buckets:
                bucket.master.copy_(vectors["weight"])
                self.optimizer.state[bucket.master] = self.states_of(bucket, vectors) | scalars
            else:
                bucket.mine.copy_(vectors["weight"])

    def states_of(self, bucket, vectors):
        """The optimizer's: all but the weight. In its dtype, as torch's ``load_state_dict`` has it."""
        states = {key: vector for key, vector in vectors.items() if key != "weight"}
        dtype = bucket.master.dtype
        return {key: vector.to(dtype) if vector.is_floating_point() else vector for key, vector in states.items()}
