"""What the busiest rank sends and receives in a step of DP and of DDP: predicted, and measured.

A prediction that is wrong is asked again with each of its arguments doubled: that shows how much of it the function
counts, and so which term is missing.
"""

from functools import cache, partial
from math import isfinite

import torch
from torch import nn

from ....data_parallel import DDP, DataParallel
from ....launch import launch
from ...alone import Calls, input_of
from ...errors import Wrong
from ...exercise import exercise
from ...own_work import Watched, calls_none_of
from ...verdict import Property
from .own_work import FINISHED

# ranks, numbers in a row of the inputs, of the outputs, rows of the batch
SIZES = [(1, 4, 3, 6), (2, 4, 3, 6), (3, 4, 3, 6), (4, 8, 5, 4), (4, 2, 2, 64), (8, 16, 2, 8)]
MEASURE = FINISHED | {"tinydist.launch": "tinydist.launch", "tinydist.lab.chapters": "the lab"}
WAYS, DIRECTIONS, TERMS = ("DP", "DDP"), ("sent", "received"), ("parameters", "inputs", "outputs")


def setting(ranks, into, out, rows):
    parameters, inputs, outputs = 4 * into * out, 4 * rows * into, 4 * rows * out
    about = f"parameters={parameters}, ranks={ranks}, inputs={inputs}, outputs={outputs}"
    given = parameters, ranks, inputs, outputs
    return input_of(lambda: given, about, (ranks, into, out, rows))


@cache
def measured(ranks, into, out, rows):
    """way -> (sent, received) of the busiest rank: what a second step adds to the traffic."""
    return {way: busiest(*(traffic(way, ranks, into, out, rows, steps) for steps in (1, 2))) for way in WAYS}


def traffic(way, ranks, into, out, rows, steps):
    def program():
        layer = nn.Linear(into, out, bias=False)
        model = DataParallel(layer) if way == "DP" else DDP(layer)
        for _ in range(steps):
            model(torch.ones(rows if way == "DP" else rows // ranks, into)).sum().backward()

    return torch.tensor(launch(program, ranks, backend="simulated").traffic)


def busiest(one, two):
    sent, received = (two - one).sum(1), (two - one).sum(0)
    rank = int((sent + received).argmax())
    return sent[rank].item(), received[rank].item()


def ask(answer, parameters, ranks, inputs, outputs):
    """The prediction, and those for twice the parameters, inputs, outputs."""
    given = {"parameters": parameters, "inputs": inputs, "outputs": outputs}
    asked = [given, *({**given, term: 2 * given[term]} for term in TERMS)]
    return [answer(each["parameters"], ranks, each["inputs"], each["outputs"]) for each in asked]


def properties(answer):
    watched = Watched(answer)
    trials = Calls(partial(ask, watched), [setting(*sizes) for sizes in SIZES])
    yield Property(
        "own work",
        "it predicts, and runs no wrapper",
        trials.together(calls_none_of(watched, MEASURE, "predict it, from the bytes that you are given")),
    )
    yield Property("runs", f"it ends for {len(SIZES)} settings", trials.end)
    yield Property("form", "two numbers for DP, and two for DDP", trials.each(form))
    for way in WAYS:
        for direction, name in zip(DIRECTIONS, ("out", "in")):
            holds = f"bytes {direction} by the busiest rank in a step"
            yield Property(f"{way} {name}", holds, trials.each(partial(equals_measured, way, direction)))


def form(trial):
    for value in trial.returned[0]:
        pairs = [value.get(way) for way in WAYS] if isinstance(value, dict) else []
        if not pairs or not all(isinstance(pair, tuple | list) and len(pair) == 2 for pair in pairs):
            raise Wrong(f'it returned {value!r}, where {{"DP": (sent, received), "DDP": (sent, received)}} is right')
        if not all(isinstance(number, int | float) and isfinite(number) for pair in pairs for number in pair):
            raise Wrong(f"it returned {value!r}, but bytes are plain numbers")


def equals_measured(way, direction, trial):
    ranks, *_ = sizes = trial.case.expected
    place = DIRECTIONS.index(direction)
    predicted, *doubled = (value[way][place] for value in trial.returned[0])
    both = measured(*sizes)[way]
    right = both[place]
    if not near(predicted, right):
        wrong = f"{way}: your {predicted:,.10g} bytes {direction} are not what was measured"
        if all(map(near, trial.returned[0][0][way], both[::-1])):
            raise Wrong(f"{wrong}, but they are in the other direction: the order is (sent, received)")
        given = dict(zip(("parameters", "ranks", "inputs", "outputs"), trial.case.arguments(0)))
        counts = {term: (each - predicted) / given[term] for term, each in zip(TERMS, doubled)}
        raise Wrong(f"{wrong}. {which_term(way, direction, counts, ranks)}")


def near(a, b):
    return abs(a - b) < 1e-3


def which_term(way, direction, counts, ranks):
    """The first term that is counted too little or too much; not how much is right."""
    if ranks == 1:
        return "With one rank nobody sends anything"
    for term, right in shares(way, direction, ranks).items():
        if not near(counts[term], right):
            if counts[term] == 0:
                return f"The {term} are missing: {PASSES[way, direction, term]}"
            if right == 0:
                return f"The {term} do not belong in it: {STAYS[way, term]}"
            often = "more" if counts[term] > right else "less"
            return f"It counts the {term} {often} often than they pass: {HOW[way, term]}"
    return "Each term is right for itself, but something is added to them"


def shares(way, direction, p):
    """How often the parameters, the inputs, the outputs pass."""
    if way == "DDP":
        return dict(zip(TERMS, (2 * (p - 1) / p, 0, 0)))
    return dict(zip(TERMS, (p - 1, (p - 1) / p * (direction == "sent"), (p - 1) / p)))


PASSES = {
    ("DP", "sent", "parameters"): "the replicas of a step are made anew",
    ("DP", "sent", "inputs"): "the whole batch is on the root, and the other ranks need rows of it",
    (
        "DP",
        "sent",
        "outputs",
    ): "backward starts at the loss, on the root. What do the other ranks need to begin theirs?",
    ("DP", "received", "parameters"): "the optimizer is on the root. What does it need from the other ranks?",
    ("DP", "received", "outputs"): "the loss is computed on the root",
    ("DDP", "sent", "parameters"): "every parameter has a gradient, of which every rank needs the mean",
    ("DDP", "received", "parameters"): "every parameter has a gradient, of which every rank needs the mean",
}
STAYS = {
    ("DP", "inputs"): "rows go to the other ranks, and nothing comes back for them: inputs need no gradient",
    ("DDP", "inputs"): "every rank reads its own rows",
    ("DDP", "outputs"): "every rank computes the loss of its own rows",
}
HOW = {
    ("DP", "parameters"): "to how many replicas does the root send the whole model, and from how many does it get a "
    "gradient, without itself?",
    ("DP", "inputs"): "which part of the batch goes to each rank, and which stays on the root?",
    ("DP", "outputs"): "each rank has the outputs of its own rows alone, and the root its own already",
    ("DDP", "parameters"): "gradients go through an all-reduce on a ring, in parts, and twice round",
}


@exercise(
    chapter="05_data_parallel",
    title="Predict the traffic of DP and DDP",
    minutes=15,
    difficulty=2,
    targets={
        "DP out, DP in": "bytes sent and received by the busiest rank, the root, as measured on 1, 2, 3, 4 and 8 ranks",
        "DDP out, DDP in": "bytes sent and received by the busiest rank (all are alike), as measured",
        "settings": f"{len(SIZES)}: models larger than their batch, and smaller",
    },
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
    why="The root of DP sends and receives p-1 models in each step, all through one link: that grows with the ranks, "
    "while a rank of DDP never passes two models, on 8 ranks or on 8,000. It is why PyTorch recommends DDP even on "
    "one machine.",
    check=properties,
)
def predict_traffic(parameters, ranks, inputs, outputs):
    """Predict the bytes that the busiest rank sends and receives in one training step, under DP and under DDP.

    ``parameters``, ``inputs`` and ``outputs`` are bytes: of the model, of the batch of all ranks together, of what the
    model returns for it. DP is that of the notebook: rank 0 has model, batch and loss, the others get replicas and
    rows. Under DDP each rank reads its own rows, and gradients are averaged on a ring.
    """
    p = ranks
    dp_sent, dp_received = 0, 0  # rank 0: forward, then backward
    ddp_sent, ddp_received = 0, 0
    raise NotImplementedError
    return {"DP": (dp_sent, dp_received), "DDP": (ddp_sent, ddp_received)}
