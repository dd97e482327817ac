"""What the training loop may hold and send: judges of the mended one."""

from ...collectives import collectives, each_sends, only_these
from ...errors import Wrong
from .held import at_most, peak_besides
from .own_work import INSTEAD
from .resumed_training import ACTIVATION, LAYER, LAYERS, STEPS

ACTIVATIONS = (2 * LAYERS + 8) * ACTIVATION
SUMMED, NUMBER = "all_reduce", 8  # bytes: a norm, from each rank at most


def held_at_start(trial):
    own = 2 * LAYERS * LAYER // trial.case.ranks
    for rank, (_, batches, _) in enumerate(trial.arguments):
        for step, held in enumerate(batches.held):
            at_most(
                trial,
                rank,
                held,
                own * (1.5 if step else 1) + LAYER + ACTIVATIONS,  # names of the step before live on
                f"when step {step} begins",
                f"Its shards and momenta have {own:,}{f', its part of the gradients {own // 2:,}' if step else ''}: "
                f"something whole is still there (all layers of the model have {LAYERS * LAYER:,}), and this is "
                "replication posing as FSDP. Who keeps it alive? A view (flatten, chunk) keeps all memory of the "
                "tensor that it is a part of",
            )


def peak(trial):
    p = trial.case.ranks
    own = 3 * LAYERS * LAYER // p
    for rank in range(p):
        at_most(
            trial,
            rank,
            peak_besides(trial, rank, ()),
            own + 4 * LAYER + ACTIVATIONS,
            "at the peak",
            f"Shards, momenta and gradients of the own part have {own:,}, a weight {LAYER:,}, and its gradient as "
            "much: all that is whole must go when its layer is done",
        )


def nbytes(trial):
    only_these(trial, {"all_gather", "reduce_scatter", SUMMED}, INSTEAD)
    p, (_, max_norm) = trial.case.ranks, trial.case.expected
    large = max((call.nbytes for call in collectives(trial) if call.name == SUMMED), default=0)
    if large > NUMBER:
        raise Wrong(
            f"an all-reduce has {large:,} bytes: what every rank needs is a norm, a number. Gradients are "
            "reduce-scattered"
        )
    norms = [call for call in collectives(trial) if call.nbytes <= NUMBER * p]  # an all-gather counts all ranks'
    if len(norms) > STEPS:
        raise Wrong(
            f"there are {len(norms)} collectives of a number in {STEPS} steps: add up one's own squares first, and "
            "send the sum"
        )
    states = STEPS * LAYERS * 3 * (p - 1) * LAYER / p
    each_sends(
        trial,
        states + sum((1 + (call.name == SUMMED)) * (p - 1) / p * call.nbytes for call in norms),
        f"{STEPS} steps x {LAYERS} layers x 3(p-1)/p x {LAYER:,} bytes, and the norms",
        times_as_much,
    )


def times_as_much(times):
    known = {
        2 / 3: "A weight is gathered once, and kept until backward",
        4 / 3: "One collective a layer is too many",
    }
    return next((words for factor, words in known.items() if abs(times - factor) < 0.02), "")
