"""The scale over the steps, yours beside the right one."""

from tinydist.visuals.canvas import canvas, picture
from tinydist.visuals.palette import BLUE, ORANGE


@picture
def scales(got, right, overflows):
    figure, axes = canvas("The loss scale after each step: yours, and GradScaler's.")
    steps = range(1, len(right) + 1)
    axes.step(steps, right, where="mid", color=BLUE, linewidth=3, alpha=0.5, label="GradScaler")
    axes.step(steps, got, where="mid", color=ORANGE, linestyle="--", label="yours")
    for step in sorted(overflows):
        axes.axvline(
            step + 1,
            color="#999999",
            linestyle=":",
            linewidth=0.8,
            label="overflow" if step == min(overflows) else None,
        )
    if min(got) > 0:
        axes.set_yscale("log", base=2)
    axes.set_xlabel("step")
    axes.set_ylabel("scale after it")
    axes.legend(loc="center left", bbox_to_anchor=(1.01, 0.5))
    return figure
