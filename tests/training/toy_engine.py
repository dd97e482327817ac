"""An engine without a model: it writes down what the loop asks of it, and says that the loss falls."""

import math
from types import SimpleNamespace

from torch.distributed.device_mesh import init_device_mesh

from tinydist.training import AXES


class ToyEngine:
    def __init__(self, pp=1, dp=1, tp=1, replicate=1, nan_at=None, skipped=()):
        self.plan = SimpleNamespace(
            pp=pp, dp=dp, tp=tp, stages=pp, ranks=pp * dp * tp, shard=dp // replicate, precision="fp32"
        )
        self.mesh = init_device_mesh("cpu", (pp, replicate, dp // replicate, 1, tp), mesh_dim_names=AXES)
        self.stages = {self.mesh.get_local_rank("pp"): None}
        self.steps, self.nan_at, self.skipped = 0, nan_at, skipped
        self.rows, self.rates, self.evaluated = [], [], []

    def step(self, tokens, targets, lr=None):
        self.rows.append((tokens, targets))
        self.rates.append(lr)
        self.steps += 1
        loss = math.nan if self.steps - 1 in (self.nan_at, *self.skipped) else 1 / self.steps
        return SimpleNamespace(loss=loss, norm=1.0, applied=self.steps - 1 not in self.skipped)

    def evaluate(self, tokens, targets):
        self.evaluated.append(tokens)
        return float(len(self.evaluated))
