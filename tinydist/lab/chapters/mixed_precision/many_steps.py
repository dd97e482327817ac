"""Many steps, seen at the masters and at the model: do small updates add up, does it all follow fp32?"""

import torch

from ...errors import Wrong
from .fp16_step import flat
from .movement import BAND, alike, start


def adds_up(trial):
    plan = trial.case.expected
    right = flat(plan.reference[-1][0]) - start()
    for rank, history in enumerate(trial.returned):
        _, model, masters = history[-1]
        moved = flat(masters) - start()
        if not moved.any():
            lost = 1 - ((flat(model) - start()) @ right / (right @ right)).item()
            raise Wrong(
                f"rank {rank}: after {plan.steps} steps the masters are what they were. The fp16 weights are updated "
                f"in their place, where updates below half of a spacing are lost: {lost:.0%} of the way in fp32 is "
                "missing"
            )
        if not (moved - right).norm() <= BAND * right.norm():
            far = (moved @ right / (right @ right)).item()
            raise Wrong(
                f"rank {rank}: after {plan.steps} small steps the masters have made {far:.0%} of the way in fp32. "
                "Update the masters from themselves, in fp32; the fp16 weights are copies, never read back"
            )
        if not all(torch.equal(p, master.half()) for p, master in zip(model, masters)):
            raise Wrong(
                f"rank {rank}: the masters are right, and the model's weights are not these, rounded to fp16: copy "
                "them back after each step"
            )


def follows(trial):
    plan, right = trial.case.expected, trial.case.expected.reference
    for step in range(plan.steps):
        way = flat(right[step][0]) - start()
        skipped = any(each == step for each, _ in plan.overflows)
        for rank, history in enumerate(trial.returned):
            if bool(history[step][0]) == skipped:
                raise Wrong(
                    f"step {step + 1} is {'skipped' if skipped else 'made'}, and rank {rank} returned {skipped}"
                )
            for name, tensors in zip(("the model's weights", "the masters"), history[step][1:]):
                moved = flat(tensors) - start()
                if not alike(moved, way):
                    share = (moved - way).norm() / way.norm()
                    raise Wrong(
                        f"after step {step + 1} {name} of rank {rank} are off by {share:.0%} of the way that they have "
                        "gone in fp32"
                    )
