"""Scale and good steps after each step, beside torch.amp.GradScaler's; a wrong one is told by the rule it breaks."""

from ...errors import Wrong
from ...messages import many


def same_scale(trial):
    plan, right = trial.case.expected, [each[1] for each in trial.case.expected.reference]
    for rank in range(plan.ranks):
        got = [each[1] for each in trial.returned[rank]]
        for step, (mine, wanted) in enumerate(zip(got, right)):
            if mine != wanted:
                raise Wrong(
                    f"after step {step + 1} rank {rank} has scale {mine:g}, where {wanted:g} is right: "
                    f"{rule(plan, right, step)}",
                    draw_scales(got, right, plan.planted),
                )


def same_count(trial):
    plan, right = trial.case.expected, trial.case.expected.reference
    for rank, history in enumerate(trial.returned):
        for step, ((_, scale, mine, _), (_, _, wanted)) in enumerate(zip(history, right)):
            if mine != wanted:
                before = right[step - 1][1] if step else plan.scale
                changed = f"the scale has changed, from {before:g} to {scale:g}" if scale != before else "it has not"
                raise Wrong(
                    f"after step {step + 1} rank {rank} returns {mine:g} good steps, where {wanted} is right: they are "
                    f"counted since the scale last changed, and in this step {changed}"
                )


def rule(plan, right, step):
    last = right[step - 1] if step else plan.scale
    if step in plan.planted:
        return f"it overflowed, and {last:g} is halved"
    good = next((back for back in range(step + 1) if step - back in plan.planted), plan.good_steps + step + 1)
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
