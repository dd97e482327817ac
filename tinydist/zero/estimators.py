"""Memory estimates of model states per rank, by the ZeRO paper's formulas.

    bytes per parameter    stage 0 (DDP)    stage 1        stage 2        stage 3
                           16               4 + 12/p       2 + 14/p       16/p

16-bit weights and gradients; fp32 master weights and two moments. Activations, buffers and fragmentation come on top.
Source: Rajbhandari et al., ZeRO, 2019, section 3.1 and figure 1.
"""

from .. import rules
from ..rules import amount, validate, within

WEIGHT, GRADIENT, STATES = 2, 2, 12  # bytes per parameter


@validate(parameters=amount)
def model_states(parameters, stage, ranks):
    """Model-state bytes per rank, as in the ZeRO paper. Stage 0 is DDP."""
    if not (within(0, 3)(stage) and rules.count(ranks)):
        raise ValueError(f"model_states: stage must be 0 to 3 and ranks >= 1, got stage {stage} and {ranks} ranks")
    shards = [ranks if stage >= sharded_from else 1 for sharded_from in (3, 2, 1)]
    return sum(parameters * size / shard for size, shard in zip((WEIGHT, GRADIENT, STATES), shards))
