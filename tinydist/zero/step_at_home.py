"""The step, at another home: bucket after bucket, and what it changes is kept on all ranks or on none."""

import torch

from ..torch_internals import unobserved
from .stepper import Stepper


class StepperAtHome(Stepper):
    """One bucket at a time, as a disk reads and writes each."""

    def __init__(self, optimizer, buckets, home, group):
        super().__init__(optimizer, buckets)
        self.home, self.group = home, group

    def _vectors(self, bucket):
        if bucket not in self.buckets:  # frozen
            return [bucket.mine]
        state = self.optimizer.state.get(bucket.master, {}).values()
        return bucket.stepped([value for value in state if value.shape == bucket.master.shape])

    def with_gradients(self):
        """Ranks that ask one another do it on the device of the first, which is not at home."""
        self.home.arrived()
        return [torch.empty(0, device=self.buckets[0].device), *super().with_gradients()]

    def square_of_norm(self):
        self.home.arrived()
        with unobserved():
            kept = super().square_of_norm()
        square = torch.zeros((), device=self.buckets[0].device)
        self.home.bring(square, kept)()
        return square

    def multiply(self, factor):
        if isinstance(factor, torch.Tensor):
            factor = self.home.keep(factor)
        self.home.arrived()
        with unobserved():
            super().multiply(factor)

    def step(self):
        self.home.arrived()
        self._all_or_nothing(self._step_on_one, self.buckets)

    def _step_on_one(self, bucket):
        with self.home.at_work(lambda: self._vectors(bucket)):
            self.step_on([bucket])
            bucket.prepare()

    def _all_or_nothing(self, change, buckets):
        """``change(bucket)`` for each of ``buckets``; if it fails, states are as before."""
        state = self.optimizer.state
        before = {
            master: {key: _copy_of_a_number(value) for key, value in kept.items()} for master, kept in state.items()
        }
        try:
            with self.home.all_or_nothing(self.group):
                for bucket in buckets:
                    change(bucket)
        except BaseException:
            state.clear()
            state.update(before)
            for bucket in self.buckets:
                bucket.master.grad = bucket.new = None
            raise

    # What is saved and loaded.

    def kept(self, bucket):
        """In copies, as the next step changes what is at home."""
        tensors = self._vectors(bucket)
        with self.home.at_work(lambda: tensors, changed=False):
            vectors, scalars = super().kept(bucket)
            return {key: vector.clone() for key, vector in vectors.items()}, scalars

    def restore(self, loaded):
        self._all_or_nothing(lambda bucket: self._restore(bucket, *loaded[bucket]), loaded)

    def _restore(self, bucket, vectors, scalars):
        changed = [bucket.mine]
        if bucket in self.buckets:
            changed = bucket.stepped([])
            for tensor in set(self._vectors(bucket)) - set(changed):
                self.home.drop(tensor)
            kept = {key: self.home.keep(vector) for key, vector in self.states_of(bucket, vectors).items()}
            self.home.arrived()
            self.optimizer.state[bucket.master] = {k: bucket.put_away(v) for k, v in kept.items()} | scalars
        with self.home.at_work(lambda: changed):
            changed[0].copy_(vectors["weight"])
            if bucket in self.buckets:
                bucket.prepare()


def _copy_of_a_number(value):
    """Counts of steps are written in place; vectors are at home, which remembers them itself."""
    return value.clone() if isinstance(value, torch.Tensor) and value.dim() == 0 else value
