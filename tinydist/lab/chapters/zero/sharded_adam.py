"""Stage 1: Adam's states of one's own shard alone."""

from functools import partial

import torch
import torch.distributed as dist
import torch.nn.functional as F

from ....simulator.matching import ranks_in_words
from ...collectives import each_sends, only_these, waited
from ...errors import Wrong
from ...exercise import exercise
from ...heard import LOUD, heard, loud
from ...ranks import Case, Trials
from ...values import close, first_difference
from ...verdict import Property
from .adam_mistakes import STEPS, adam, gradient, pieces, start, suspects, total, trained
from .chain import noted
from .held import at_most, held_now
from .own_work import HOLDS, INSTEAD, Counted, own_work

FLOAT = 4  # bytes
SIZES = [(1, 60), (2, 120), (2, 91), (3, 100), (3, 4)]  # ranks, weights
SLACK = 64  # bytes: Adam counts its steps
STATES = 8  # bytes a number: two moments


def case(ranks, size):
    padding = f", {-size % ranks} of padding" if size % ranks else ""
    return Case(ranks, lambda rank: (start(size), gradient), f"{size} weights{padding}", size, kind=size)


def train(answer, weights, gradient):
    """After each step: the weights, the bytes held in all, and those of the optimizer's states."""
    rank, found = dist.get_rank(), []
    step = answer(weights, adam)
    if not callable(step):
        raise Wrong(f"on rank {rank} it returned {step!r}, where it should return the function step")
    for number in range(STEPS):
        step(gradient(len(weights), rank, number))
        found.append((noted(weights), held_now(), held_now("optimizer states")))
    return found


def properties(answer):
    watched = Counted(partial(train, answer))
    trials = Trials(watched, [case(*sizes) for sizes in SIZES], values)
    loud_trials = Trials(loud(partial(train, answer)), [case(3, 100)])
    yield Property("own work", HOLDS, trials.each(own_work(watched)))
    yield Property("runs", "it ends on 1, 2 and 3 ranks, with padding and without", trials.end)
    yield Property("waits", "whatever is started is waited for", trials.each(waited))
    yield Property("values", f"weights of one process, on every rank, after each of {STEPS} steps", trials.each(values))
    yield Property("states", "Adam's states of the own shard alone: 8k bytes", trials.each(states))
    yield Property("memory", "between steps, 16k bytes besides the weights", trials.each(memory))
    yield Property("bytes", "2(p-1)/p of the padded weights, in each step", trials.each(nbytes))
    yield Property("heard", "the weights follow what the collectives give", loud_trials.each(heard(loud_step)))


def own_size(trial):
    """k, the numbers in a shard."""
    return -(-trial.case.expected // trial.case.ranks)


def weights_after(trial, step):
    return [torch.from_numpy(found[step][0]) for found in trial.returned]


def values(trial):
    size, p = trial.case.expected, trial.case.ranks
    right = trained(start(size), [each / p for each in total(size, [1] * p)])
    for step in range(STEPS):
        got = weights_after(trial, step)
        wrong = [rank for rank in range(p) if not close(got[rank], right[step])]
        if wrong:
            known = suspects(size, p).items()
            found = (words for words, theirs in known if all(close(got[r], theirs[r][step]) for r in wrong))
            who = "" if len(wrong) == p else f"{ranks_in_words(wrong)} {'is' if len(wrong) == 1 else 'are'} wrong: "
            why = next(found, None) or first_difference(wrong[0], got, [right[step]] * p)
            raise Wrong(f"after step {step}, {who}{why}")


def states(trial):
    k, size = own_size(trial), trial.case.expected
    for rank, found in enumerate(trial.returned):
        for step, (_, _, held) in enumerate(found):
            whole = held >= STATES * size and trial.case.ranks > 1
            at_most(
                trial,
                rank,
                held,
                STATES * k + SLACK,
                f"of optimizer states after step {step}",
                "These are the moments of all numbers: a plain optimizer on every rank, and nothing is sharded. Give "
                "Adam the own shard"
                if whole
                else f"Two moments of its own {k} numbers are 8 bytes each",
            )


def memory(trial):
    k, given = own_size(trial), FLOAT * trial.case.expected
    view = "A shard that is a view (chunk, split) of a padded copy keeps all of it: clone it"
    gradient = "A padded gradient kept after step is 4n bytes: what step needs should end with it"
    for rank, found in enumerate(trial.returned):
        for step, (_, held, _) in enumerate(found):
            more = held - given - 4 * FLOAT * k
            at_most(
                trial,
                rank,
                held - given,
                4 * FLOAT * k + SLACK,
                f"after step {step} besides the weights",
                f"A shard of {k} numbers, its gradient and its two moments are 16 bytes each. "
                f"{gradient if more >= given else view}",
            )


def nbytes(trial):
    only_these(trial, {"reduce_scatter", "all_gather"}, INSTEAD)
    p, k = trial.case.ranks, own_size(trial)
    each_sends(
        trial, STEPS * 2 * (p - 1) * FLOAT * k, f"{STEPS} steps x 2(p-1)/p x {FLOAT * k * p} bytes", times_as_much
    )


def times_as_much(times):
    known = {1.5: "The gradients or the weights travel once too often", 2: "All travels twice"}
    return next((words for factor, words in known.items() if abs(times - factor) < 1e-6), "")


def loud_step(trial):
    """After one step, in which rank LOUD's gradient counts twice, and its new shard arrives doubled."""
    size, p = trial.case.expected, trial.case.ranks
    right = trained(start(size), [each / p for each in total(size, [1 + (rank == LOUD) for rank in range(p)])[:1]])[0]
    right = torch.cat([part * (1 + (rank == LOUD)) for rank, part in enumerate(pieces(right, p))])[:size]
    if not all(close(got, right) for got in weights_after(trial, 0)):
        raise Wrong("they do not follow")


@exercise(
    chapter="06_zero",
    title="Your own shard of Adam (stage 1)",
    minutes=25,
    difficulty=3,
    targets={
        "values": "weights as of one process that takes the mean gradient; 3 steps, 1, 2 and 3 ranks, sizes that need "
        "padding",
        "states": "k = the weights / p, rounded up: 8k bytes of optimizer states a rank",
        "memory": "16k bytes between steps, besides the weights: shard, gradient, two moments",
        "bytes": "2(p-1)/p of the padded weights a step, as much as an all-reduce",
    },
    hints=[
        "Adam treats each number by itself. So a rank needs the mean gradient of its own numbers only; which "
        "collective gives just that? And which one brings the new numbers to all?",
        "Pad weights with zeros (F.pad) until p divides them, and cut them into p parts of k: the one of a rank's "
        "number is its own. Make Adam once, for that part alone, before the first step.",
        "In step: pad the gradient alike; dist.reduce_scatter_single(mean, padded); mean /= p; shard.grad = mean; "
        "optimizer.step(); dist.all_gather_single(row, shard).",
        "weights.copy_(row[:len(weights)]): in place, without the padding. If the shard is a part of a padded copy, "
        "the whole copy stays in memory with it: .clone() the part.",
    ],
    why="Adam's states are 12 of the 16 bytes a parameter in mixed precision, and to shard them costs no byte on the "
    "wire: an all-reduce was a reduce-scatter and an all-gather all along, and the step moves in between. That is "
    "DeepSpeed's stage 1, and Megatron-LM's distributed optimizer.",
    check=properties,
)
def sharded_adam(weights, adam):
    """Train flat ``weights``, the same on every rank, with Adam, whose states each rank keeps for its own shard alone.

    ``adam([tensor])`` makes torch's Adam for a tensor. Return a function ``step(gradient)``: it gets this rank's own
    gradient of all weights, and leaves in ``weights``, in place and on every rank, what one process would have after a
    step with the mean of the ranks' gradients. The ranks need not divide the weights: pad.
    """
    p, rank = dist.get_world_size(), dist.get_rank()
    padding = -len(weights) % p
    # Which part of the padded weights is this rank's own? Adam is made once, for it alone.
    raise NotImplementedError

    def step(gradient):
        padded = F.pad(gradient, (0, padding))
        # The mean gradient of the own part; a step of Adam there; and all parts to all ranks.
        raise NotImplementedError

    return step
