"""The scale after each step, beside that of torch.amp.GradScaler; a wrong one is told by the rule that it breaks."""

from ...errors import Wrong
from ...messages import many


def same_scale(trial):
    plan, right = trial.case.expected, [scale for _, scale in trial.case.expected.reference]
    for rank in range(plan.ranks):
        got = [scale for _, scale in trial.returned[rank]]
        for step, (mine, wanted) in enumerate(zip(got, right)):
            if mine != wanted:
                raise Wrong(
                    f"after step {step + 1} rank {rank} has scale {mine:g}, where {wanted:g} is right: "
                    f"{rule(plan, right, step)}",
                    draw_scales(got, right, plan.planted),
                )


def rule(plan, right, step):
    last = right[step - 1] if step else plan.scale
    if step in plan.planted:
        return f"it overflowed, and {last:g} is halved"
    good = next((back for back in range(step + 1) if step - back in plan.planted), step + 1)
    if right[step] > last:
        return f"{many(plan.window, 'good step')} in a row since the scale changed, the window, and {last:g} is doubled"
    return (
        f"{many(good, 'good step')} since the last overflow, and the window is {plan.window}. The count begins anew "
        "at each overflow, and whenever the scale has grown"
    )


def draw_scales(got, right, overflows):
    def draw():
        from .scale_picture import scales  # only now: matplotlib takes its time

        return scales(got, right, overflows)

    return draw
