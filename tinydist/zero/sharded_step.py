"""The optimizer step on the shards of all buckets. (With offload: offload/stages.py.)"""

import torch

from .sharding import at_least_fp32


class ShardedStep:
    """``optimizer`` steps on the masters of ``buckets``."""

    def __init__(self, optimizer, buckets):
        self.optimizer, self.buckets = optimizer, buckets

    def with_gradients(self):
        """Tensors whose ``grad`` is that of this rank's shards, as loss scalers expect them."""
        found = [bucket.grad.detach() for bucket in self.buckets if bucket.grad is not None]
        for tensor in found:
            tensor.grad = tensor.detach()
        return found

    def squared_norm(self):
        """The squared norm of this rank's gradients."""
        norms = [torch.linalg.vector_norm(at_least_fp32(bucket.grad)) for bucket in self.buckets]
        return sum(bucket.norm_weight * norm.square() for bucket, norm in zip(self.buckets, norms))

    def scale_grads(self, factor):
        """In fp32: an unscaled gradient may underflow in 16 bits."""
        for bucket in self.buckets:
            bucket.grad = at_least_fp32(bucket.grad)
        torch._foreach_mul_([bucket.grad for bucket in self.buckets], factor)

    def step(self):
        """Once, on all of them: torch's optimizers may use foreach kernels."""
        self.step_on(self.buckets)

    def step_on(self, buckets):
        for bucket in buckets:
            bucket.master.grad = at_least_fp32(bucket.grad)
        self.optimizer.step()
        for bucket in buckets:
            bucket.master.grad = None

    # Checkpoints.

    def kept(self, bucket):
        """(vectors, scalars): this rank's shard of master weights and optimizer states, and step counts."""
        if bucket not in self.buckets:  # frozen
            return {"weight": bucket.shard}, {}
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
                bucket.shard.copy_(vectors["weight"])

    def states_of(self, bucket, vectors):
        """The optimizer's: all but the weight, cast to the master's dtype as torch's ``load_state_dict`` does."""
        states = {key: vector for key, vector in vectors.items() if key != "weight"}
        dtype = bucket.master.dtype
        return {key: vector.to(dtype) if vector.is_floating_point() else vector for key, vector in states.items()}
