"""What checkpoints ask of whoever trains a model, besides ``rows``, ``kept`` and ``restore``."""

from .unanimous import place_in


class Trained:
    """Of all ranks of ``group``, each has every parameter, or a shard of it; so have ``replicas``, in other groups.

    run, random     what else is saved: of all ranks, for JSON; and of each rank, tensors
    """

    replicas = None
    run, random = {}, {}

    @property
    def names(self):
        return {parameter: name for name, parameter in self.module.named_parameters()}

    @property
    def buffers(self):
        return dict(self.module.named_buffers())

    @property
    def saved_buffers(self):
        """By this rank."""
        return self.buffers if place_in(self.group)[0] == 0 else {}

    @property
    def optimizer_name(self):
        return type(self.optimizer).__name__

    def param_group(self, row):
        """The optimizer's; None, if the row is frozen."""
        return self.optimizer.param_groups[self.group_of[row]] if row in self.group_of else None

    def saved(self, row):
        """Parameter -> segment: what this rank saves. Its vectors are flat."""
        return row.saved

    def accept(self, states):
        """Raises ``CheckpointError`` if what else was saved does not fit."""
