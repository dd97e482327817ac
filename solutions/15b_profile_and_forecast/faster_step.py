"""A step of several micro-batches that waits for each all-reduce, to be made faster by its timeline."""

from dataclasses import replace

import torch
import torch.distributed as dist

from tinydist.hardware import find_cluster
from tinydist.lab.author import Bytes, Case, Seconds, Values, Waits, also, exercise, mistake

PCIE = find_cluster("PCIe box")
SMALLER = 4  # times, in width and rows: so a check takes no seconds to compute
SLOWER = replace(  # by what that spares: virtual time is that of the large layers
    PCIE,
    device=PCIE.device.at(matmul=SMALLER**-3, memory=SMALLER**-2),
    intra_node=replace(PCIE.intra_node, bandwidth=PCIE.intra_node.bandwidth / SMALLER**2),
)


def case(ranks, parts, layers=2, dim=5, measured=False):
    def arguments(rank):
        draw = torch.Generator().manual_seed(7)
        weights = [torch.randn(dim, dim, generator=draw) / dim**0.5 for _ in range(layers)]
        own = torch.Generator().manual_seed(rank)
        return weights, [torch.randn(dim, dim, generator=own) for _ in range(parts)]

    return Case(ranks, arguments, f"{layers} layers of {dim} x {dim}, {parts} micro-batches", measured)


def test_cases():
    yield case(2, 2)
    yield case(3, 1, layers=3)
    yield case(4, 3)
    yield case(1, 2)
    # With layers of 512 x 512 latency outweighs what overlap saves.
    yield case(4, 2, layers=6, dim=896 // SMALLER, measured=True)


REDUCED = """            gradients[layer] += inputs[layer].T @ error
            if last:
                works.append(dist.all_reduce(gradients[layer], async_op=True))
"""
AT_ONCE = """            part = inputs[layer].T @ error
            dist.all_reduce(part)
            gradients[layer] += part
"""
LOSS = """        loss += inputs[-1].square().mean() / len(batches)
        if last:
            works.append(dist.all_reduce(loss, async_op=True))
"""
EACH_LOSS = """        own = inputs[-1].square().mean() / len(batches)
        dist.all_reduce(own)
        loss += own
"""
MEANS = "    return loss / ranks, [gradient / ranks for gradient in gradients]"


@exercise(
    title="A step that takes a third less time",
    minutes=30,
    difficulty=3,
    test_cases=test_cases,
    targets=[
        Values(
            "on 1 to 4 ranks, 1 to 4 micro-batches: the mean loss and the mean gradient of each layer",
            ["the loss", "the gradients"],
        ),
        Waits("each all-reduce is waited for"),
        Bytes("an all-reduce of each layer's gradient, and of the loss, once in a step", together=True),
        Seconds(
            "with 4 ranks, 2 micro-batches and 6 layers of 896 x 896 (as layers of 224 x 224 on GPUs and wires that "
            "are slower by as much), each layer's gradient reduced while backward goes on: the program that is given "
            "takes 1.6 times this, and up to 1.12 times are enough. One message after backward takes at least 1.16 "
            "times this",
            "Look at the timeline: are gradients sent while backward still computes? The first all-reduce of a "
            "gradient has to start before backward ends",
            room=1.12,
            clusters=lambda case: [SLOWER],
        ),
    ],
    mistakes=[
        mistake(
            "Gradients are reduced after each micro-batch: add up on the rank, and reduce the sums once",
            REDUCED,
            AT_ONCE,
            given=True,
        ),
        mistake(
            "The loss is reduced in the middle of each micro-batch, and backward waits for it. Nothing needs it before "
            "the end",
            LOSS,
            EACH_LOSS,
            given=True,
        ),
        mistake(
            "Nothing overlaps: while gradients are sent, nothing is computed. Start a layer's all-reduce when backward "
            "has passed it, with async_op=True, go on with the next layer, and wait at the end",
            "works.append(dist.all_reduce(gradients[layer], async_op=True))",
            "dist.all_reduce(gradients[layer])",
        ),
        mistake(
            "The sum over ranks is returned, where the mean is asked for",
            MEANS,
            "    return loss, gradients",
        ),
        mistake(
            "The mean over micro-batches is asked for: divide by their number",
            "2 * error / error.numel() / len(batches)",
            "2 * error / error.numel()",
        ),
        mistake(
            "Only the last micro-batch's gradients are reduced and returned: add up those of all",
            "gradients[layer] += inputs",
            "gradients[layer] = inputs",
        ),
    ],
    alternatives=[  # divided by the ranks before they are added up, as DDP does
        also(
            REDUCED,
            REDUCED.replace("if last:\n", "if last:\n                gradients[layer] /= ranks\n"),
            LOSS,
            LOSS.replace("if last:\n", "if last:\n            loss /= ranks\n"),
            MEANS,
            "    return loss, gradients",
        )
    ],
    hints=[
        "Draw the run: visuals.timeline(tinydist.launch(program, 4, cluster='PCIe box')). Which all-reduces are "
        "needed at all?",
        "The mean of the step needs the sum over its micro-batches, and only the last of them completes it.",
        "In the last micro-batch a layer's gradient is complete when backward has passed it: layers below are computed "
        "meanwhile. The same goes for the loss.",
    ],
    why="These are no_sync, overlap and asynchronous metrics. DDP users get all three by a line, and lose them by "
    "a line: by a large bucket, or by a metric that is reduced in the middle of a step.",
)
def faster_step(weights, batches):
    """One step on several micro-batches: return the mean loss, and the list of mean gradients, over all ranks.

    Layers are ``torch.relu(x @ weight)``, the loss of a micro-batch is the mean of the squares of the last
    layer's output, and the loss of the step is the mean over micro-batches and ranks. The program is right, and
    waits too often: make it take at least 32 % less time on 4 A100s joined by PCIe. One all-reduce after backward is
    not enough: gradients have to travel while backward computes, so the first must start before backward ends. How you
    group them is up to you. Backward is written out, from the last layer to the first.
    """
    ranks, works = dist.get_world_size(), []
    gradients, loss = [torch.zeros_like(weight) for weight in weights], torch.zeros(())
    for number, batch in enumerate(batches):
        last = number == len(batches) - 1
        inputs = [batch]
        for weight in weights:
            inputs.append(torch.relu(inputs[-1] @ weight))
        loss += inputs[-1].square().mean() / len(batches)
        if last:
            works.append(dist.all_reduce(loss, async_op=True))
        error = inputs[-1]
        error = 2 * error / error.numel() / len(batches)
        for layer in reversed(range(len(weights))):
            error = error * (inputs[layer + 1] > 0)
            gradients[layer] += inputs[layer].T @ error
            if last:
                works.append(dist.all_reduce(gradients[layer], async_op=True))
            error = error @ weights[layer].T
    for work in works:
        work.wait()
    return loss / ranks, [gradient / ranks for gradient in gradients]
