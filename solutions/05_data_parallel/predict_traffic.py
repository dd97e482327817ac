"""What the busiest rank sends and receives in a step of DP and of DDP, predicted."""

from math import isfinite

from tinydist.lab.author import Own, Part, Wrong, alone, exercise, mistake

from .chapter import SOLVED

# ranks, width of the frozen layer, outputs of the trained one, rows of the batch, microbatches
SIZES = [(2, 4, 3, 12, 3), (3, 4, 3, 6, 1), (4, 8, 5, 16, 4), (4, 2, 2, 64, 2), (8, 16, 2, 24, 3), (1, 4, 3, 6, 3)]
FLOWS = ("the root of DP sends", "the root of DP receives", "a rank of DDP sends", "a rank of DDP receives")
TERMS = ("parameters", "trained parameters", "inputs", "outputs")
DOUBLED = [(1, 1, 1, 1), (2, 1, 1, 1), (1, 2, 1, 1), (1, 1, 2, 1), (1, 1, 1, 2)]


def world(ranks, into, out, rows, microbatches):
    parameters, trained, inputs, outputs = (4 * n for n in (into * (into + out), into * out, rows * into, rows * out))
    about = (
        f"parameters={parameters}, trained={trained}, ranks={ranks}, microbatches={microbatches}, inputs={inputs}, "
        f"outputs={outputs}"
    )
    return alone(lambda: (parameters, trained, ranks, microbatches, inputs, outputs), about)


def test_cases():
    return [world(*sizes) for sizes in SIZES]


def terms_of(answer, parameters, trained, ranks, microbatches, inputs, outputs):
    """How often a prediction counts each term: that shows when the term is doubled. And what it has besides."""
    given, found = (parameters, trained, inputs, outputs), {}
    asked = []
    for a, b, c, d in DOUBLED:
        asked.append(numbers(answer(parameters * a, trained * b, ranks, microbatches, inputs * c, outputs * d)))
    for flow, at, *doubled in zip(FLOWS, *asked):
        added = [twice - at for twice in doubled]
        for term, nbytes, more in zip(TERMS, given, added):
            found[f"how often {flow} each byte of the {term}"] = round(more / nbytes, 9)
        found[f"what {flow} besides parameters, inputs and outputs"] = round(at - sum(added), 6)
    return found


def numbers(value):
    pairs = [value.get(way) for way in ("DP", "DDP")] if isinstance(value, dict) else [None]
    if not all(isinstance(pair, tuple | list) and len(pair) == 2 for pair in pairs):
        raise Wrong(f'it returned {value!r}, where {{"DP": (sent, received), "DDP": (sent, received)}} is right')
    if not all(type(each) in (int, float) and isfinite(each) for pair in pairs for each in pair):
        raise Wrong(f"it returned {value!r}, but bytes are plain numbers")
    return [*pairs[0], *pairs[1]]


SENT, RECEIVED, RING = (
    "microbatches * parameters + inputs / p + outputs / p",
    "outputs / p + microbatches * trained",
    "2 * others / p * trained",
)


@exercise(
    title="Predict the traffic of DP and DDP",
    minutes=20,
    difficulty=3,
    test_cases=test_cases,
    program=terms_of,
    targets=[
        Own("it predicts, and runs no wrapper", "predict it, from the bytes that you are given", SOLVED),
        Part(
            "DP",
            "of DP ",
            "bytes sent and received by the busiest rank, the root, as measured on 1, 2, 3, 4 and 8 ranks, with 1 to 4 "
            "microbatches",
            tell=False,
        ),
        Part("DDP", "of DDP ", "bytes sent and received by the busiest rank (all are alike), as measured", tell=False),
    ],
    mistakes=[
        mistake(
            "The parameters are sent once, but replicas are forgotten after backward: each microbatch needs them anew",
            SENT,
            "parameters + inputs / p + outputs / p",
        ),
        mistake(
            "The inputs and outputs are those of the whole batch: its microbatches together have no more of them",
            SENT,
            "microbatches * (parameters + inputs / p + outputs / p)",
        ),
        mistake(
            "The outputs are missing: backward starts at the loss, on the root. What do the other ranks need to begin "
            "theirs?",
            SENT,
            "microbatches * parameters + inputs / p",
        ),
        mistake(
            "A frozen parameter is sent with the model, and nothing comes back for it: it has no gradient",
            RECEIVED,
            "outputs / p + microbatches * parameters",
        ),
        mistake(
            "The gradients come back once, but the root of DP adds them up: each microbatch's backward sends them",
            RECEIVED,
            "outputs / p + trained",
        ),
        mistake(
            "Each microbatch is reduced, but DDP accumulates: it reduces in the last one alone",
            RING,
            "2 * others / p * trained * microbatches",
        ),
        mistake(
            "All parameters are reduced, but those that are frozen have no gradient",
            RING,
            "2 * others / p * parameters",
        ),
        mistake(
            "The gradients go through an all-reduce on a ring, in p parts: how many of them does a rank send?",
            RING,
            "2 * trained",
        ),
    ],
    hints=[
        "Go through a microbatch of DP line by line, and note at each what leaves the root and what comes to it: "
        "replicas, rows, outputs, and then backward, where each comes back as its gradient. What of it is the same in "
        "the next microbatch?",
        "Forward, the root sends all parameters to each of p-1 ranks, and to each of them 1/p of the inputs; it gets "
        "1/p of the outputs from each. Backward turns the arrows round, for all that has a gradient.",
        "Inputs and frozen parameters need no gradient, so nothing comes back for them. Of the outputs only their "
        "gradient is sent by the root. Rows are each in one microbatch, and parameters in all of them.",
        "DDP: an all-reduce on a ring of as many bytes as the trained parameters have, once in a step. Each rank sends "
        "2(p-1) parts of 1/p, and receives as many. Batch and outputs stay where they are.",
    ],
    why="As a star, the root of DP sends and receives p-1 models in each microbatch, all through one link: that grows "
    "with the ranks, and with every microbatch. A rank of DDP never passes two models, on 8 ranks or on 8,000, and "
    "where most parameters are frozen, as with LoRA, it sends next to nothing. But DDP's bytes travel while backward "
    "runs, and DP's do not.",
)
def predict_traffic(parameters, trained, ranks, microbatches, inputs, outputs):
    """Predict the bytes that the busiest rank sends and receives in one training step, under DP and under DDP.

    A step adds up the gradients of several ``microbatches``, all of the same size. The rest are bytes: of all
    ``parameters``, of those of them that are ``trained`` (the others are frozen, ``requires_grad=False``), and of the
    ``inputs`` and ``outputs`` of the whole step, of all ranks and microbatches together. DP is the star of the
    notebook: rank 0 has model, batch and loss, and lends its model anew to each of the others for each microbatch.
    Under DDP each rank reads its own rows, and a ring averages gradients after the last microbatch.
    """
    p = ranks
    # -
    others = p - 1
    sent = others * (microbatches * parameters + inputs / p + outputs / p)  # replicas, rows; the outputs' gradient
    received = others * (outputs / p + microbatches * trained)  # outputs; then the parameters' gradients
    ring = 2 * others / p * trained
    # .
    dp_sent, dp_received = sent, received  # = dp_sent, dp_received = 0, 0  # rank 0: forward, then backward
    ddp_sent, ddp_received = ring, ring  # = ddp_sent, ddp_received = 0, 0
    # ?
    # .
    return {"DP": (dp_sent, dp_received), "DDP": (ddp_sent, ddp_received)}
