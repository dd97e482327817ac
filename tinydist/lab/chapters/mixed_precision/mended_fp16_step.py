"""A step of training in fp16 with four bugs, each of which leaves the loss falling for a while."""

from functools import partial

import torch
import torch.distributed as dist
import torch.nn.functional as F

from ....simulator.matching import ranks_in_words
from ....simulator.record import Issue
from ...errors import Wrong
from ...exercise import exercise
from ...messages import draw_traffic, many, of
from ...own_work import Watched
from ...ranks import about
from ...values import kind
from ...verdict import Property
from .fp16_step import Plan, case_of, flat, train
from .many_steps import adds_up, follows
from .movement import moves, start
from .own_work import own_work
from .scenarios import Scenarios

CASES = {
    "one microbatch": Plan(),
    "2 microbatches": Plan(microbatches=2),
    "4 microbatches": Plan(microbatches=4),
    "2 microbatches on each rank": Plan(3, 2),
    "clipping, no scale": Plan(max_norm=0.5),
    "clipping, scale 256": Plan(microbatches=2, scale=256.0, max_norm=0.5),
    "a norm that needs no clipping, scale 256": Plan(scale=256.0, max_norm=100.0),
    "clipping on two ranks": Plan(2, scale=256.0, max_norm=0.5),
    "overflow on rank 0 of 1": Plan(scale=256.0, overflows=((0, 0),)),
    "overflow on rank 1 of 2": Plan(2, 2, scale=256.0, overflows=((0, 1),)),
    "overflow on rank 0 of 3": Plan(3, scale=256.0, max_norm=0.5, overflows=((0, 0),)),
    "overflow on rank 0, then a good step": Plan(steps=2, scale=256.0, overflows=((0, 0),)),
    "overflow on rank 2, then a good step": Plan(3, steps=2, scale=256.0, overflows=((0, 2),)),
    "gradients of 2^-26, scale 2^16": Plan(scale=2.0**16, size=2.0**-14, lr=2.0**26),
    "many small steps": Plan(2, steps=24, scale=256.0, lr=2.0**-17),
    "training": Plan(3, 2, steps=10, scale=256.0, lr=0.1, max_norm=1.0, overflows=((3, 1), (6, 0))),
}


def properties(answer):
    watched = Watched(answer)
    trials = Scenarios(partial(train, watched), [case_of(about, plan) for about, plan in CASES.items()])
    yield Property("runs", "it ends on 1, 2 and 3 ranks, and says whether it made the step", lambda: came_back(trials))
    yield Property("own work", "neither torch's scaler nor the library's", trials.each(own_work(watched)))
    yield Property("mean", "one over all microbatches of all ranks", trials.each(moves, about("microbatch")))
    yield Property("overflow", "of one rank: no step, on no rank", trials.each(skips, about("overflow")))
    yield Property("clipping", "of the unscaled gradient", trials.each(moves, about("clipping")))
    yield Property("unscaling", "in fp32, where small ones last", trials.each(moves, about("2^-26")))
    yield Property(
        "masters", "updates add up in fp32, the model has them rounded", trials.each(adds_up, about("small steps"))
    )
    yield Property("training", "10 steps, two of them skipped, follow fp32", trials.each(follows, about("training")))
    yield Property("bytes", "gradients once a step: 4 bytes each, and one number", trials.each(once))


def came_back(trials):
    trials.end()
    trials.each(says_whether)()


def says_whether(trial):
    plan = trial.case.expected
    for rank, history in enumerate(trial.returned):
        for step, (returned, *_) in enumerate(history):
            if isinstance(returned, torch.Tensor) and returned.numel() == 1:
                returned = bool(returned)
            if not isinstance(returned, bool):
                raise Wrong(f"in step {step + 1} rank {rank} returned {kind(returned)}, where True or False is right")
            if not returned and not plan.overflows:
                raise Wrong(
                    f"in step {step + 1} nothing overflows, and it returned False on rank {rank}: make the step"
                )


# Steps that overflow.


def skips(trial):
    plan = trial.case.expected
    (step, culprit), *_ = plan.overflows
    wrong = [
        rank
        for rank, history in enumerate(trial.returned)
        if not all(torch.equal(flat(tensors), start()) for tensors in history[step][1:])
    ]
    if wrong:
        finite = flat(trial.returned[wrong[0]][step][1]).isfinite().all()
        state = "have changed" if finite else "are inf or NaN now"
        raise Wrong(
            f"rank {culprit}'s gradients overflow in fp16, and {ranks_in_words(wrong)} of {plan.ranks} "
            f"{'makes' if len(wrong) == 1 else 'make'} the step: the weights {state}. {cure(wrong, culprit, finite)}"
        )
    told = [rank for rank, history in enumerate(trial.returned) if history[step][0]]
    if told:
        raise Wrong(f"rank {culprit}'s gradients overflow, no rank steps, and {ranks_in_words(told)} returned True")
    if plan.steps > 1:
        goes_on(trial, step + 1)


def goes_on(trial, step):
    try:
        moves(trial, step)
    except Wrong as wrong:
        raise Wrong(
            f"in the step after a skipped one, {wrong}. What is left of the skipped gradients? The next ones must "
            "begin from zero"
        ) from None


def cure(wrong, culprit, finite):
    if culprit in wrong and finite:
        return "Yours are finite: compute with the fp16 model, and leave inf and NaN in its gradients"
    if culprit in wrong:
        return "It is skipped if any gradient is inf or NaN"
    return (
        "Their own gradients are finite, and the average with the others is not. Look at what is averaged, or share "
        "the decision"
    )


def once(trial):
    plan = trial.case.expected
    most = plan.steps * (start().nbytes + 8)
    for rank, program in enumerate(trial.run.record.programs):
        nbytes = sum(entry.transfer.nbytes for entry in of(program, Issue))
        if nbytes > most and plan.ranks > 1:
            raise Wrong(
                f"rank {rank} puts {nbytes:,} bytes into collectives in {many(plan.steps, 'step')}, where {most:,} are "
                "enough: 4 for each gradient and step, and one number. Add up the microbatches first, and average "
                "once",
                draw_traffic(trial),
            )


@exercise(
    chapter="04_mixed_precision",
    title="Find four bugs",
    minutes=35,
    difficulty=4,
    targets={
        "mean": "the step of one process in fp32 that has all microbatches of 1, 2 or 3 ranks, within 3 %",
        "overflow": "one rank's inf skips the step on all",
        "clipping": "the mean gradient, unscaled, has a norm of max_norm at most",
        "unscaling": "gradients of 2^-26 are not lost",
        "masters": "24 steps of 2^-17 times the gradient add up as in fp32, within 3 %",
        "bytes": "4 for each gradient in a step, and 8",
    },
    hints=[
        "Read from the loss to the weights, and ask at each line: which number has this gradient been multiplied by so "
        "far? By the scale? Divided by the number of microbatches, of ranks?",
        "The mean over microbatches is taken at two places. And max_norm is for the gradient of the loss itself, not "
        "for one that is scale times as large.",
        "overflow is decided before the ranks' gradients are averaged, each by its own. What does a rank without "
        "overflow get from the average with one that has inf? Decide after it.",
        "p.data is fp16: small updates vanish in it. Update master, which is fp32, and let p be its copy: p.data.copy_("
        "master).",
    ],
    why="None of these bugs raises an error, and with each of them the loss falls for a while. They are found by "
    "comparing a few steps with fp32, in one process: the first thing to do with any training loop of your own.",
    check=properties,
)
def mended_fp16_step(model, masters, microbatches, scale, lr, max_norm):
    """Mend this step of training in fp16: it has four bugs.

    Every rank has its own ``microbatches`` of (x, y). The step is one of SGD, by the gradient of the mean loss over all
    microbatches of all ranks, clipped to a norm of ``max_norm``. ``masters`` are fp32 copies of the model's weights,
    which are fp16. If the gradients of any rank overflow, no rank steps. Return whether the step was made.
    """
    weights = list(model.parameters())
    model.zero_grad()
    for x, y in microbatches:
        loss = F.mse_loss(model(x).float(), y) / len(microbatches)
        (scale * loss).backward()
    gradients = [p.grad.float() / len(microbatches) for p in weights]
    overflow = not all(g.isfinite().all() for g in gradients)
    for g in gradients:
        dist.all_reduce(g)
        g /= dist.get_world_size()
    norm = torch.linalg.vector_norm(torch.cat([g.flatten() for g in gradients]))
    for g in gradients:
        g *= min(1, max_norm / norm)
        g /= scale
    if not overflow:
        for p, master, g in zip(weights, masters, gradients):
            p.data -= lr * g
    return not overflow
