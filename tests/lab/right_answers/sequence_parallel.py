"""Other right answers to the exercises of 07b_sequence_parallel: they must pass."""

import torch
import torch.distributed as dist
import torch.nn.functional as F
from lab.registered import others

RIGHT_ANSWERS, right = others()


def total(x, group=None):
    x = x.clone()
    dist.all_reduce(x, group=group)
    return x


# kept_by_block


@right("kept_by_block")
def tensor_by_tensor(tokens, width, heads, kv_heads, inner, gated, parallel, ranks, sequence_parallel):
    own = tokens / ranks if sequence_parallel else tokens
    shapes = [(own, width), (tokens, width)] * (1 if parallel else 2)  # of each norm: in, out
    head = width / heads
    shapes += [(tokens, heads / ranks * head)] * 2 + [(tokens, max(kv_heads / ranks, 1) * head)] * 2
    shapes += [(tokens, inner / ranks)] * (4 if gated else 2)
    return sum(2 * rows * columns for rows, columns in shapes)


# most_gpus


@right("most_gpus")
def solved_for_the_time(seconds, whole, tokens, width, heads, per_node, nvlink, network, least):
    """Useful by ``least``: t T(t) is at most T(1)/``least``."""

    def cost(t):
        sent = 16 * tokens * width * (t - 1) / (nvlink if t <= per_node else network)
        return seconds + (t - 1) * whole + sent

    return max((t for t in range(1, heads + 1) if not heads % t and cost(t) <= seconds / least), default=1)


# which_way


@right("which_way")
def by_sorting(sequences, tokens, width, heads, kv_heads, parameters, ranks):
    activations = sequences * tokens * width
    ways = [
        (8 * activations, "tensor", heads),
        (3 * parameters, "ZeRO-3", sequences),
        (3 * parameters + 4 * activations * kv_heads / heads, "context", tokens),
    ]
    numbers, way, _ = min(each for each in ways if each[2] % ranks == 0)
    return way, numbers - numbers / ranks


# mended_copies


def backward(scale, up, down, x, targets, mask, seed, enter, leave):
    hidden = torch.tanh(enter(F.rms_norm(x, x.shape[-1:], eps=0.0) * scale) @ up)
    y = x + leave((mask(hidden, seed + dist.get_rank()) * hidden) @ down)
    F.mse_loss(y, targets, reduction="sum").backward()


def clip(parameters, norm, max_norm):
    if norm > max_norm:
        for parameter in parameters:
            parameter.grad.mul_(max_norm / norm)


@right("mended_copies")
def rank_0_counts_the_copies(scale, up, down, *rest):
    """As in Megatron-LM."""
    *given, max_norm = rest
    backward(scale, up, down, *given)
    dist.all_reduce(scale.grad)
    counted = [scale, up, down] if dist.get_rank() == 0 else [up, down]
    square = sum(parameter.grad.square().sum() for parameter in counted)
    dist.all_reduce(square)
    norm = square.sqrt()
    clip((scale, up, down), norm, max_norm)
    return norm


@right("mended_copies")
def copies_are_added_behind_the_sum(scale, up, down, *rest):
    *given, max_norm = rest
    backward(scale, up, down, *given)
    dist.all_reduce(scale.grad)
    parts = torch.cat([up.grad.flatten(), down.grad.flatten()]).norm() ** 2
    dist.all_reduce(parts)
    norm = (parts + scale.grad.norm() ** 2).sqrt()
    clip((scale, up, down), norm, max_norm)
    return norm


@right("mended_copies")
def a_hook_adds_up(scale, up, down, *rest):
    *given, max_norm = rest
    scale.register_hook(total)
    backward(scale, up, down, *given)
    t = dist.get_world_size()
    square = sum(p.grad.pow(2).sum() / copies for p, copies in ((scale, t), (up, 1), (down, 1)))
    square = total(square)
    clip((scale, up, down), square.sqrt(), max_norm)
    return square.sqrt()
