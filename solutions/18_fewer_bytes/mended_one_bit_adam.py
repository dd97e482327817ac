"""A 1-bit Adam with four bugs, none of which raises an error."""

import torch
import torch.distributed as dist
import torch.nn.functional as F

from tinydist.compression import compressed_all_reduce, error_buffers
from tinydist.lab.author import Bytes, Case, Own, Values, exercise, mistake

from .chapter import INSTEAD, SOLVED, WAITS, numbers

MOVED = "        m.mul_(0.9).add_(gradient, alpha=0.1)\n"
PADDED = "flat = F.pad(sent, (0, len(worker) - n))"
MADE = "    worker, server = error_buffers(n)\n"


def case(ranks, n, freeze, steps=6):
    about = f"{n} numbers, {freeze} steps of warm-up, {steps - freeze} compressed"
    return Case(ranks, lambda rank: (n, steps, freeze), about)


def test_cases():
    yield case(2, 16, 6)
    yield case(2, 16, 2)
    yield case(3, 24, 3)
    yield case(2, 13, 2)
    yield case(1, 5, 2)
    yield case(4, 20, 1)


def train(answer, n, steps, freeze):
    rank = dist.get_rank()
    gradients = [0.3 + numbers(n, seed=100 * step + rank) for step in range(steps)]
    return {"the weights": answer(torch.zeros(n), gradients, freeze)}


@exercise(
    title="Find four bugs in 1-bit Adam",
    minutes=25,
    difficulty=4,
    test_cases=test_cases,
    program=train,
    targets=[
        WAITS,
        Own(
            "compressed_all_reduce and error_buffers, and the collectives of torch.distributed",
            INSTEAD,
            SOLVED,
            lent=(
                "tinydist.compression.compressed_all_reduce",
                "tinydist.compression.bits",
            ),
        ),
        Values("the weights after warm-up and compressed steps, on 1 to 4 ranks", scratch=True),
        Bytes("all gradients while it is warm, then one bit per number in both directions"),
    ],
    mistakes=[
        mistake(
            "The server's error is new in each step: what the second compression leaves is lost. Keep one for all "
            "steps",
            "compressed_all_reduce(flat, worker, server)",
            "compressed_all_reduce(flat, worker, torch.zeros_like(server))",
            given=True,
        ),
        mistake(
            "There is a bias correction in compressed steps. The warm-up has none, and v, which is frozen, has none to "
            "correct: the steps become shorter at the freeze",
            "w -= lr * m / (v.sqrt() + 1e-8)",
            "w -= lr * m / ((1 - 0.9 ** (step + 1) if step >= freeze else 1) * (v.sqrt() + 1e-8))",
            given=True,
        ),
        mistake(
            "The padding of the flat buffer has what the last step has left there, and it goes into the scale: pad "
            "with zeros in each step",
            PADDED,
            "kept[:n] = sent\n            flat = kept",
            MADE,
            MADE + "    kept = torch.zeros(len(worker))\n",
            given=True,
        ),
        mistake(
            "It is the gradient that is compressed, and not the momentum: send m, after this rank's gradient went into "
            "it",
            "sent = m\n",
            "sent = gradient\n",
            "m.copy_(flat[:n])",
            "m.mul_(0.9).add_(flat[:n], alpha=0.1)",
            MOVED,
            f"        if step < freeze:\n    {MOVED}",
            given=True,
        ),
        mistake(
            "v moves in compressed steps, too: with gradients of this rank alone it is another on each rank",
            "            v.mul_(0.999).addcmul_(gradient, gradient, value=0.001)\n",
            "",
            MOVED,
            "        v.mul_(0.999).addcmul_(gradient, gradient, value=0.001)\n" + MOVED,
        ),
        mistake(
            "The momenta are averaged in full: from ``freeze`` on they go in one bit per number",
            "compressed_all_reduce(flat, worker, server)",
            "dist.all_reduce(flat)\n            flat /= dist.get_world_size()",
        ),
    ],
    hints=[
        "Which tensors must live from one step to the next? There are five: w, m, v and two errors.",
        "The step is lr m / (sqrt(v) + eps), in the warm-up and after it.",
        "13 numbers on two ranks are padded to 16. What is in the last three places, in the first compressed step and "
        "in the second? The scale is a norm of all 16.",
        "m = 0.9 m + 0.1 gradient on each rank, with its own gradient; then all take about the mean of these m.",
    ],
    why="Each of the four trains, and the loss falls. DeepSpeed 0.19.6 has one of them: its 1-bit LAMB leaves in the "
    "padding of its flat buffer what the last step wrote there. A test against the plain algorithm, on sizes that do "
    "not divide, finds it.",
)
def mended_one_bit_adam(w, gradients, freeze):
    """Mend this 1-bit Adam: it has four bugs. All tensors are float32 and flat.

    ``gradients`` are this rank's own, one for each step. In the first ``freeze`` steps gradients are averaged, and m
    and v move, without bias correction. From then on v stays, m moves by this rank's gradient, and all ranks take about
    the mean of their m, in one bit per number. Return w. ``error_buffers(n)`` makes both errors for n numbers, the
    first as long as the padded tensor; ``compressed_all_reduce(tensor, worker, server)`` changes all three.
    """
    n, lr = w.numel(), 0.01
    m, v = torch.zeros(2, n)
    worker, server = error_buffers(n)
    for step, gradient in enumerate(gradients):
        gradient = gradient.clone()
        if step < freeze:
            dist.all_reduce(gradient)
            gradient /= dist.get_world_size()
            v.mul_(0.999).addcmul_(gradient, gradient, value=0.001)
        m.mul_(0.9).add_(gradient, alpha=0.1)
        if step >= freeze:
            sent = m
            flat = F.pad(sent, (0, len(worker) - n))
            compressed_all_reduce(flat, worker, server)
            m.copy_(flat[:n])
        w -= lr * m / (v.sqrt() + 1e-8)
    return w
