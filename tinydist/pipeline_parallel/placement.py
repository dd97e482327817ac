"""Which rank has which stage: a tuple, stage -> rank.

    one_each(4)     0 1 2 3                  a microbatch goes down the ranks, and its gradient up again
    in_a_loop(4)    0 1 2 3 0 1 2 3          twice around: each stage half as long, so ranks wait half as long
    in_a_v(4)       0 1 2 3 3 2 1 0          down and up: the first rank has both ends, so it has the loss at once

Sources: Narayanan et al., Megatron-LM, 2021, section 2.2 (loop); Qi et al., Pipeline Parallelism with Controllable
Memory, 2024, section 4 (V).
"""

from ..rules import listed, takes


@takes(ranks=listed)
def one_each(ranks):
    return tuple(range(ranks))


@takes(ranks=listed, stages_per_rank=listed)
def in_a_loop(ranks, stages_per_rank=2):
    return tuple(range(ranks)) * stages_per_rank


@takes(ranks=listed)
def in_a_v(ranks):
    return (*range(ranks), *reversed(range(ranks)))
