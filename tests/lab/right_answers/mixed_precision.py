"""Other right answers to the exercises of 04_mixed_precision: they must pass."""

import math
import struct

import torch
import torch.distributed as dist
import torch.nn.functional as F
from lab.registered import others

RIGHT_ANSWERS, right = others()


# round_to_bfloat16


@right("round_to_bfloat16")
def by_float64(x):
    """Torch's round takes ties to even."""
    wide = x.double()
    spacing = 2.0 ** (torch.frexp(wide).exponent.clamp(min=-125).double() - 8)
    near = (wide / spacing).round() * spacing
    return torch.where(near.abs() >= 2.0**128, torch.inf * near.sign(), near).float()


@right("round_to_bfloat16")
def by_cases(x):
    """The lower half decides; NaN is made anew."""
    bits = x.contiguous().view(torch.int32)
    lower, upper = bits & 0xFFFF, bits >> 16
    up = (lower > 0x8000) | (lower == 0x8000) & (upper % 2 == 1)
    return torch.where(x != x, torch.nan, ((upper + up) << 16).view(torch.float32))


@right("round_to_bfloat16")
def number_by_number(x):
    def rounded(number):
        (bits,) = struct.unpack("I", struct.pack("f", number))
        if bits & 0x7FFFFFFF > 0x7F800000:
            return number
        bits += 0x7FFF + (bits >> 16 & 1)
        return struct.unpack("f", struct.pack("I", bits >> 16 << 16))[0]

    return torch.tensor([rounded(number) for number in x.flatten().tolist()]).view(x.shape)


# lost_updates


@right("lost_updates")
def pair_by_pair(weights, updates, format):
    def steps(w, u):
        exponent = max(math.frexp(w)[1] - 1, format.lowest_exponent) if w else format.lowest_exponent
        spacing = math.ldexp(1, exponent - format.mantissa_bits)
        whole = int(abs(w) / spacing)
        to_zero = (w < 0 < u or u < 0 < w) and whole == 1 << format.mantissa_bits and exponent > format.lowest_exponent
        times = spacing / (4 if to_zero else 2) / abs(u)
        return math.ceil(times) if whole % 2 and times > 1 else int(times) + (whole % 2 == 0 or times < 1)

    counts = torch.tensor([max(1, steps(*pair)) for pair in zip(weights.tolist(), updates.tolist())])
    return counts > 1, counts


@right("lost_updates")
def by_logarithm(weights, updates, format):
    """The spacing below a weight is that of a number which is a little smaller."""
    weights, updates = weights.double(), updates.double()
    size = weights.abs()
    inside = torch.where(weights * updates < 0, size * (1 - 2.0**-30), size)
    lowest = torch.tensor(2.0**format.lowest_exponent).double()
    here, there = (2.0 ** each.maximum(lowest).log2().floor() * format.epsilon for each in (size, inside))
    times = there / 2 / updates.abs()
    stays_at_ties = (size / here).remainder(2) == 0
    steps = torch.where(stays_at_ties, times.floor() + 1, times.ceil()).clamp(min=1)
    return steps > 1, steps


@right("lost_updates")
def in_whole_spacings(weights, updates, format):
    """Lists of results, where steps is float32."""
    spacing = 2.0 ** (torch.frexp(weights.double()).exponent.double() - 1 - format.mantissa_bits)
    spacing[weights == 0] = 0
    spacing = spacing.clamp(min=2.0 ** (format.lowest_exponent - format.mantissa_bits))
    mantissa, move = weights.double() / spacing, updates.double() / spacing
    gap = torch.ones_like(move)
    gap[(mantissa.abs() == 2**format.mantissa_bits) & (mantissa.sign() != move.sign())] = 0.5
    gap[weights.abs() <= format.smallest_normal] = 1
    lost = torch.where(mantissa % 2 == 0, move.abs() <= gap / 2, move.abs() < gap / 2)
    exact = gap / 2 % move.abs() == 0
    steps = torch.div(gap / 2, move.abs(), rounding_mode="floor") + ~(exact & (mantissa % 2 != 0))
    return [lost, torch.where(lost, steps, 1).float()]


# kahan_step


@right("kahan_step")
def by_backward_and_names(weights, rests, x, targets, lr):
    """F.linear, .grad, the loss by hand; the rest is taken away first and the rounded difference found afterwards."""
    up, down = weights
    up.grad = down.grad = None
    hidden = F.linear(x.to(up.dtype), up).float()
    centered = hidden - hidden.mean(-1, keepdim=True)
    normal = centered * (centered.square().mean(-1, keepdim=True) + 1e-5).rsqrt()
    logits = F.linear(normal.to(down.dtype), down).float()
    loss = (logits.logsumexp(-1) - logits.gather(-1, targets[:, None])[:, 0]).mean()
    loss.backward()
    for weight, rest in zip(weights, rests):
        update = rest.float() - lr * weight.grad.float()
        before = weight.data.float()
        weight.data = (before + update).bfloat16()
        rest.data = (update - (weight.data.float() - before)).bfloat16()
    return loss.detach()


@right("kahan_step")
def in_float64(weights, rests, x, targets, lr):
    loss = F.cross_entropy((layer(x, weights[0]).bfloat16() @ weights[1].mT).float(), targets)
    for weight, rest, gradient in zip(weights, rests, torch.autograd.grad(loss, weights)):
        with torch.no_grad():
            exact = weight.double() + rest.double() - lr * gradient.double()
            weight[...] = exact.bfloat16()
            rest[...] = (exact - weight.double()).bfloat16()
    return loss


def layer(x, weight):
    return F.layer_norm((x.bfloat16() @ weight.mT).float(), weight.shape[:1])


# scaled_step


def scaler(optimizer, scale, good_steps, window, max_norm, squares_of_all):
    gradients = [p.grad for group in optimizer.param_groups for p in group["params"] if p.grad is not None]
    for g in gradients:
        g /= scale
    norm = math.sqrt(squares_of_all(sum((g.square().sum() for g in gradients), torch.zeros(()))))
    if not math.isfinite(norm):
        return scale / 2, 0
    for g in gradients:
        g *= min(1, max_norm / (norm + 1e-6))  # as torch
    optimizer.step()
    return (scale * 2, 0) if good_steps + 1 == window else (scale, good_steps + 1)


@right("scaled_step")
def gathered(optimizer, scale, good_steps, window, max_norm):
    def squares_of_all(mine):
        each = [torch.empty(()) for _ in range(dist.get_world_size())]
        dist.all_gather(each, mine)
        return float(sum(each))

    return scaler(optimizer, scale, good_steps, window, max_norm, squares_of_all)


@right("scaled_step")
def norms_of_norms(optimizer, scale, good_steps, window, max_norm):
    """Norms, not squares: the norm of norms is that of all."""

    def squares_of_all(mine):
        norms = [torch.empty(()) for _ in range(dist.get_world_size())]
        dist.all_gather(norms, mine.sqrt())
        return torch.linalg.vector_norm(torch.stack(norms)).item() ** 2

    return scaler(optimizer, scale, good_steps, window, max_norm, squares_of_all)


@right("scaled_step")
def new_gradients_and_tensors(optimizer, scale, good_steps, window, max_norm):
    """Squares before they are unscaled, in float64; scale and count come back as tensors."""
    total = torch.zeros((), dtype=torch.float64)
    parameters = [p for group in optimizer.param_groups for p in group["params"] if p.grad is not None]
    for p in parameters:
        total += (p.grad.double() / scale).square().sum()
    dist.all_reduce(total)
    calm = bool(total.isfinite())
    if calm:
        for p in parameters:
            p.grad = p.grad * (min(1.0, max_norm / total.item() ** 0.5) / scale)
        optimizer.step()
    good_steps = (good_steps + 1) * calm
    full = good_steps == window
    return torch.tensor(scale) * (2.0 if full else 1.0 if calm else 0.5), torch.tensor(good_steps * (not full))


# mended_fp16_step


def backward(model, microbatches, scale):
    model.zero_grad()
    for x, y in microbatches:
        (scale / len(microbatches) * F.mse_loss(model(x).float(), y)).backward()
    return [p.grad.float() for p in model.parameters()]


def write_back(model, masters):
    with torch.no_grad():
        for p, master in zip(model.parameters(), masters):
            p.copy_(master)


@right("mended_fp16_step")
def a_flag_of_its_own(model, masters, microbatches, scale, lr, max_norm):
    """Each rank looks at its own gradients, and all hear of it; what is averaged is unscaled afterwards."""
    gradients = backward(model, microbatches, scale)
    found = torch.tensor([not all(g.isfinite().all() for g in gradients)], dtype=torch.int32)
    dist.all_reduce(found, dist.ReduceOp.MAX)
    for g in gradients:
        dist.all_reduce(g)
        g /= scale * dist.get_world_size()
    norm = sum(g.square().sum() for g in gradients).sqrt()
    if not found:
        for master, g in zip(masters, gradients):
            master.sub_(g * (max_norm / norm).clamp(max=1), alpha=lr)
        write_back(model, masters)
    return found == 0


@right("mended_fp16_step")
def by_torchs_optimizer(model, masters, microbatches, scale, lr, max_norm):
    for master, g in zip(masters, backward(model, microbatches, scale)):
        dist.all_reduce(g, async_op=True).wait()
        master.grad = g / scale / dist.get_world_size()
    norm = torch.nn.utils.clip_grad_norm_(masters, max_norm)
    if norm.isfinite():
        torch.optim.SGD(masters, lr=lr).step()
        write_back(model, masters)
    return bool(norm.isfinite())


# training_bytes


@right("training_bytes")
def in_bits(recipe, n):
    """A format's bits stand in its name, but for the b of bf16."""

    def nbytes(format):
        return int("".join(filter(str.isdigit, format))) // 8

    kept = ["SGD", "momentum", "Adam"].index(recipe.optimizer)
    blocks = -(-n // 256) if recipe.moments == "8 bit" else 0
    return {
        "optimizer states": kept * (n * nbytes(recipe.moments) + 4 * blocks) + (4 * n if recipe.master else 0),
        "gradients": sum(n * nbytes(format) for format in recipe.gradients),
        "parameters": n * nbytes(recipe.weights),
    }


@right("training_bytes")
def as_floats(recipe, n):
    held = {"fp32": 4.0, "bf16": 2.0, "fp16": 2.0, "8 bit": 1 + 4 / 256}
    states = {"SGD": 0.0, "momentum": 1.0, "Adam": 2.0}[recipe.optimizer] * held[recipe.moments] + 4.0 * recipe.master
    found = dict(parameters=held[recipe.weights], gradients=sum(map(held.get, recipe.gradients)))
    return {purpose: each * n for purpose, each in {**found, "optimizer states": states}.items()}


@right("training_bytes")
def by_torch(recipe, n):
    """Sizes by asking torch for a number of each format."""
    dtypes = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16, "8 bit": torch.int8}
    size = {name: dtype.itemsize for name, dtype in dtypes.items()}
    states = 0
    if recipe.master:
        states += n * size["fp32"]
    if recipe.optimizer != "SGD":
        for _ in range(1 + (recipe.optimizer == "Adam")):
            states += n * size[recipe.moments]
            if recipe.moments == "8 bit":
                states += n * size["fp32"] // 256
    return {
        "parameters": n * size[recipe.weights],
        "gradients": sum(n * size[each] for each in recipe.gradients),
        "optimizer states": states,
    }


@right("mended_fp16_step")
def counts_are_sent_beside_the_gradients(model, masters, microbatches, scale, lr, max_norm):
    """Of gradients that overflow, and of microbatches."""
    weights = list(model.parameters())
    model.zero_grad()
    for x, y in microbatches:
        (scale * F.mse_loss(model(x).float(), y) / len(microbatches)).backward()
    gradients = [p.grad.float() for p in weights]
    overflows = sum(int((~g.isfinite()).sum()) for g in gradients)
    counts = torch.tensor([float(overflows), float(len(microbatches))])
    dist.all_reduce(counts)
    for g in gradients:
        g *= len(microbatches) / counts[1]
        dist.all_reduce(g)
        g /= scale
    norm = torch.linalg.vector_norm(torch.cat([g.flatten() for g in gradients]))
    if counts[0]:
        return False
    for p, master, g in zip(weights, masters, gradients):
        master -= lr * g * min(1, max_norm / norm)
        p.data.copy_(master)
    return True
