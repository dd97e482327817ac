"""What the busiest rank sends and receives in a step of DP and of DDP, predicted."""

from math import isfinite

from tinydist.lab.author import Own, Wrong, alone, exercise, mistake

from .chapter import SOLVED, Part

# ranks, numbers in a row of the inputs, of the outputs, rows of the batch
SIZES = [(2, 4, 3, 6), (3, 4, 3, 6), (4, 8, 5, 4), (4, 2, 2, 64), (8, 16, 2, 8), (1, 4, 3, 6)]
FLOWS = ("the root of DP sends", "the root of DP receives", "a rank of DDP sends", "a rank of DDP receives")
TERMS = ("parameters", "inputs", "outputs")
DOUBLED = [(1, 1, 1), (2, 1, 1), (1, 2, 1), (1, 1, 2)]


def world(ranks, into, out, rows):
    parameters, inputs, outputs = 4 * into * out, 4 * rows * into, 4 * rows * out
    about = f"parameters={parameters}, ranks={ranks}, inputs={inputs}, outputs={outputs}"
    return alone(lambda: (parameters, ranks, inputs, outputs), about)


def test_cases():
    return [world(*sizes) for sizes in SIZES]


def terms_of(answer, parameters, ranks, inputs, outputs):
    """How often a prediction counts each term: that shows when the term is doubled. And what it has besides."""
    given, found = (parameters, inputs, outputs), {}
    asked = [numbers(answer(parameters * a, ranks, inputs * b, outputs * c)) for a, b, c in DOUBLED]
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
    "parameters + inputs / p + outputs / p",
    "outputs / p + parameters",
    "2 * others / p * parameters",
)


@exercise(
    title="Predict the traffic of DP and DDP",
    minutes=15,
    difficulty=2,
    test_cases=test_cases,
    program=terms_of,
    targets=[
        Own("it predicts, and runs no wrapper", "predict it, from the bytes that you are given", SOLVED),
        Part(
            "of DP ",
            "DP",
            "bytes sent and received by the busiest rank, the root, as measured on 1, 2, 3, 4 and 8 ranks; models "
            "larger than their batch, and smaller",
            tell=False,
        ),
        Part("of DDP ", "DDP", "bytes sent and received by the busiest rank (all are alike), as measured", tell=False),
    ],
    mistakes=[
        mistake("The parameters are missing: the replicas of a step are made anew", SENT, "inputs / p + outputs / p"),
        mistake(
            "The inputs are missing: the whole batch is on the root, and the other ranks need rows of it",
            SENT,
            "parameters + outputs / p",
        ),
        mistake(
            "The outputs are missing: backward starts at the loss, on the root. What do the other ranks need to begin "
            "theirs?",
            SENT,
            "parameters + inputs / p",
        ),
        mistake(
            "The parameters are missing: the optimizer is on the root. What does it need from the other ranks?",
            RECEIVED,
            "outputs / p",
        ),
        mistake(
            "The inputs do not belong in it: rows go to the other ranks, and nothing comes back for them",
            RECEIVED,
            SENT,
        ),
        mistake(
            "Every parameter has a gradient, of which every rank needs the mean: they are missing",
            RING,
            "0",
        ),
        mistake(
            "The gradients go through an all-reduce on a ring, in p parts: how many of them does a rank send?",
            RING,
            "2 * parameters",
        ),
        mistake(
            "They are in the other direction: the order is (sent, received)", "= sent, received", "= received, sent"
        ),
    ],
    hints=[
        "Go through a step of DP line by line, and note at each what leaves the root and what comes to it: replicas, "
        "rows, outputs, and then backward, where each comes back as its gradient.",
        "Forward, the root sends all parameters to each of p-1 ranks, and to each of them 1/p of the inputs; it gets "
        "1/p of the outputs from each. Backward turns the arrows round, for all that has a gradient.",
        "Inputs need no gradient, so nothing comes back for them. Of the outputs only their gradient is sent by the "
        "root.",
        "DDP: an all-reduce on a ring of as many bytes as the parameters have. Each rank sends 2(p-1) parts of 1/p, "
        "and receives as many. Batch and outputs stay where they are.",
    ],
    why="As a star, the root of DP sends and receives p-1 models in each step, all through one link: that grows with "
    "the ranks. PyTorch's chain sends the model once each way, and a rank of DDP never passes two models, on 8 ranks "
    "or on 8,000. But DDP's bytes travel while backward runs, and DP's do not.",
)
def predict_traffic(parameters, ranks, inputs, outputs):
    """Predict the bytes that the busiest rank sends and receives in one training step, under DP and under DDP.

    ``parameters``, ``inputs`` and ``outputs`` are bytes: of the model, of the batch of all ranks together, of what the
    model returns for it. DP is the star of the notebook: rank 0 has model, batch and loss, and sends to each of the
    others a replica of the model and rows. Under DDP each rank reads its own rows, and a ring averages gradients.
    """
    p = ranks
    # -
    others = p - 1
    sent = others * (parameters + inputs / p + outputs / p)  # replicas, rows; then the outputs' gradient
    received = others * (outputs / p + parameters)  # outputs; then the parameters' gradients
    ring = 2 * others / p * parameters
    # .
    dp_sent, dp_received = sent, received  # = dp_sent, dp_received = 0, 0  # rank 0: forward, then backward
    ddp_sent, ddp_received = ring, ring  # = ddp_sent, ddp_received = 0, 0
    # ?
    # .
    return {"DP": (dp_sent, dp_received), "DDP": (ddp_sent, ddp_received)}
