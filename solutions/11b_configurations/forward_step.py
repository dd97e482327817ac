"""A masked loss whose mean is over the tokens of a step: of all microbatches, and of all data ranks."""

import torch
import torch.distributed as dist
import torch.nn.functional as F

from tinydist.lab.author import Bytes, Case, Malformed, Varied, also, exercise, kind, mistake

from .chapter import numbers

VOCABULARY, WIDTH, LENGTH = 7, 4, 5


def case(*counts, rows=2):
    """``counts``: of each data rank, how many tokens count in each of its microbatches."""
    ranks, about = len(counts), " and ".join(", ".join(map(str, each)) for each in counts)
    return Case(ranks, lambda rank: (list(batches(rank, counts[rank], rows)),), f"microbatches of {about} tokens")


def batches(rank, counts, rows):
    """``counts`` of the tokens of each microbatch, drawn from all its places."""
    masks = []
    for micro, count in enumerate(counts):
        order = torch.randperm(rows * LENGTH, generator=torch.Generator().manual_seed(7 * rank + micro))
        masks.append((order < count).float().view(rows, LENGTH))
    for micro in range(len(counts)):
        draw = torch.Generator().manual_seed(100 + 10 * rank + micro)
        text = torch.randint(VOCABULARY, (rows, LENGTH + 1), generator=draw)
        sizes = {"tokens": text[:, :-1], "labels": text[:, 1:]}
        yield sizes | {"loss_mask": masks[micro], "step_masks": torch.stack(masks)}


def test_cases():
    yield case([9, 2])
    yield case([9, 2, 1], [5, 3, 6])
    yield case([6], [6])
    yield case([8], [1])
    yield case([10, 1, 4], [3, 3, 3])
    yield case([7, 1], [2, 10], [4, 4])
    yield case([6, 0], [3, 1])
    yield case([0], [5], [1])
    yield case([4, 4], [4, 4], rows=1)
    yield case([10])


def trained(answer, microbatches):
    """As Megatron-LM of 2023: each microbatch's loss counts 1/M, and gradients are averaged over data ranks."""
    embedding = numbers(VOCABULARY, WIDTH, seed=1).requires_grad_()
    head = numbers(WIDTH, VOCABULARY, seed=2).requires_grad_()

    def model(tokens, labels):
        logits = embedding[tokens] @ head
        return F.cross_entropy(logits.flatten(0, 1), labels.flatten(), reduction="none").view_as(labels)

    data_iterator, told, values = iter(microbatches), [], []
    for _ in microbatches:
        output, loss_func = asked(answer(data_iterator, model), "forward_step", "(output, loss_func)")
        loss, report = asked(loss_func(output), "loss_func", "(loss, report)")
        if not isinstance(loss, torch.Tensor) or loss.numel() != 1 or not loss.requires_grad:
            raise Malformed("loss_func returned a loss without a gradient, or one that is no single number")
        (loss / len(microbatches)).backward()
        told.append(torch.as_tensor(report["lm loss"]).detach().reshape(()))
        values.append(loss.detach().reshape(()))
    trained_on = torch.stack(values).mean()
    for each in (embedding.grad, head.grad, trained_on):
        dist.all_reduce(each)
        each /= dist.get_world_size()
    found = {"the gradient of the embedding": embedding.grad, "the gradient of the head": head.grad}
    shown = torch.stack(told).mean()
    return found | {"lm loss": shown, "loss, its mean over microbatches and data ranks": trained_on}


def asked(found, name, words):
    if not isinstance(found, tuple) or len(found) != 2:
        raise Malformed(f"{name} returned {kind(found)}, where {words} is right")
    return found


SHARE = "share = (losses * mask).sum() * microbatches * ranks / count"
SUMMED = 'batch["step_masks"].sum()'
COUNT = f"        count = {SUMMED}\n        dist.all_reduce(count)\n"
RETURNS = '        return share, {"lm loss": told / ranks}\n'
TOGETHER = """\
        own = (losses * mask).sum()
        both = torch.stack([own.detach(), batch["step_masks"].sum()])
        dist.all_reduce(both)
        factor = microbatches / both[1]
        return own * factor * ranks, {"lm loss": both[0] * factor}
"""
TOLD = "        told = share.detach().clone()\n        dist.all_reduce(told)\n"


@exercise(
    title="The mean of a masked loss",
    minutes=20,
    difficulty=3,
    test_cases=test_cases,
    program=trained,
    targets=[
        Varied(
            "gradients and both losses of the mean over all tokens that count, of 1 to 3 data ranks and of 1 to 3 "
            "microbatches, some without any",
            variants=[
                (
                    "The losses are added up without the mask: multiply them by it, so that padding does not count",
                    "(losses * mask).sum()",
                    "losses.sum()",
                ),
                (
                    "All tokens are counted, padding, too: count where the masks are 1",
                    COUNT,
                    COUNT.replace(SUMMED, 'torch.tensor(float(batch["step_masks"].numel()))'),
                ),
                (
                    "The losses that count are added up: divide by the tokens of the whole step",
                    SHARE,
                    "share = (losses * mask).sum()",
                ),
                (
                    "These are the tokens of this data rank, and the share is not multiplied as often: add up the "
                    "counts of "
                    "all data ranks",
                    COUNT,
                    '        count = batch["step_masks"].sum()\n',
                ),
                (
                    "The gradients are right, and the loss that is told is dp times too large: it is the mean over "
                    "data ranks",
                    "told / ranks",
                    "told",
                ),
                (
                    "The gradients are right, and the loss that is told is M times too small: its mean over "
                    "microbatches is "
                    "taken afterwards",
                    "told / ranks",
                    "told / ranks / microbatches",
                ),
                (
                    "The gradients are right, and the loss that is told is the share of the microbatch: its mean over "
                    "the "
                    "microbatches is to be that of the step",
                    "told / ranks",
                    "told / ranks / microbatches / ranks",
                ),
                (
                    "The gradients are right, and the loss that is told is the mean of each microbatch by itself",
                    '"lm loss": told / ranks',
                    '"lm loss": (losses * mask).sum().detach() / mask.sum().clamp(min=1)',
                ),
                (
                    "Multiplied by b, the rows of a microbatch, where M is right, the number of microbatches: "
                    "step_masks has the shape [M, b, T]",
                    'len(batch["step_masks"])',
                    'len(batch["loss_mask"])',
                ),
                (
                    "The masks are averaged, and not added up: count the tokens",
                    'batch["step_masks"].sum()',
                    'batch["step_masks"].mean()',
                ),
            ],
        ),
        Bytes(
            "two all-reduces of one number in a microbatch, or fewer",
            "all-reduce numbers, and no masks or losses",
            fewer=True,
        ),
    ],
    alternatives=[also(f"{COUNT}        {SHARE}\n{TOLD}{RETURNS}", TOGETHER)],  # one all-reduce of both numbers
    mistakes=[
        mistake(
            "This is a mean of means: a microbatch with few tokens counts as much as one with many. Divide by the "
            "tokens of the whole step",
            f"{COUNT}        {SHARE}",
            "        share = (losses * mask).sum() / mask.sum().clamp(min=1)",
        ),
        mistake(
            "The microbatch counts 1/M already, as pretrain divides by the number of microbatches: multiply by it",
            " * microbatches * ranks",
            " * ranks",
        ),
        mistake(
            "Gradients are averaged over data ranks afterwards, so a share of the sum has to be dp times as large",
            " * microbatches * ranks",
            " * microbatches",
        ),
        mistake(
            "These are the tokens of this data rank. A rank with few tokens would count as much as one with many: add "
            "up the counts of all data ranks",
            COUNT + "        " + SHARE,
            '        count = batch["step_masks"].sum()\n        share = (losses * mask).sum() * microbatches / count',
        ),
        mistake(
            "This is M x dp times too small. It is the share of the mean, and pretrain divides it twice more: each "
            "loss by M, and gradients by dp. Multiply by both",
            " * microbatches * ranks",
            "",
        ),
        mistake(
            "These are the tokens of this microbatch, on all data ranks. It is still a mean of means: count those of "
            "all microbatches of the step",
            COUNT + "        " + SHARE,
            "        count = mask.sum()\n        dist.all_reduce(count)\n"
            "        share = (losses * mask).sum() * ranks / count.clamp(min=1)",
        ),
        mistake(
            "There is no mask in it: padding has gone into the sum and into the count. Multiply the losses by the "
            "mask, and count where it is 1",
            "(losses * mask).sum()",
            "losses.sum()",
            'count = batch["step_masks"].sum()',
            'count = torch.tensor(float(batch["step_masks"].numel()))',
        ),
        mistake(
            "The gradients are right, but the loss that is told is that of this rank's own tokens: it is to be "
            "averaged over data ranks, as each has its share",
            TOLD + '        return share, {"lm loss": told / ranks}',
            '        return share, {"lm loss": share.detach()}',
        ),
    ],
    hints=[
        "Write down two microbatches, of 9 tokens and of 2, and the sums of their losses. What is the mean over 11 "
        "tokens? What does pretrain make of two means?",
        "Each microbatch should contribute its sum / count, with the count of the whole step on all data ranks. Count "
        'in batch["step_masks"], which has the masks of all microbatches of this rank, and all-reduce.',
        "pretrain divides each loss by M, and gradients by dp. So return sum / count x M x dp. The loss that is told "
        "goes the same way: average it over data ranks.",
    ],
    why="This error changes what is learnt and nothing fails, so it was found late: in torchtune and transformers in "
    "2024. torchtitan counts the tokens of a step first, as you do here; Megatron-LM has --calculate-per-token-loss.",
)
def forward_step(data_iterator, model):
    """Return (output, loss_func), as pretrain_gpt.py does, such that what is trained on is the mean over all tokens
    that count, of all microbatches and of all data ranks in this step.

    ``next(data_iterator)`` is a microbatch, a dict: "tokens", "labels" and "loss_mask", [b, T] each, and "step_masks",
    [M, b, T]: the loss masks of all M microbatches of this data rank in this step. A mask is 1 where a token counts,
    else 0. ``model(tokens, labels=labels)`` gives the loss of each token, [b, T].

    ``loss_func(output)`` returns (loss, {"lm loss": ...}). As in Megatron-LM of 2023, who calls it divides each loss by
    M before backward, and averages gradients over data ranks, which are all ranks here. So the mean of ``loss`` over
    microbatches and data ranks is the mean loss of the step. "lm loss" is the same on all ranks, and its mean over the
    microbatches is the same number. Some microbatch may have no token that counts.
    """
    # ? What does a microbatch contribute to the mean over all tokens?
    batch = next(data_iterator)
    mask, microbatches, ranks = batch["loss_mask"], len(batch["step_masks"]), dist.get_world_size()

    def loss_func(losses):
        count = batch["step_masks"].sum()
        dist.all_reduce(count)
        share = (losses * mask).sum() * microbatches * ranks / count
        told = share.detach().clone()
        dist.all_reduce(told)
        return share, {"lm loss": told / ranks}

    return model(batch["tokens"], labels=batch["labels"]), loss_func
