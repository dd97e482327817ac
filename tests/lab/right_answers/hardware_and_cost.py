"""Other right answers to the exercises of 03_hardware_and_cost: they must pass."""

import math
from fractions import Fraction

from lab.registered import others

RIGHT_ANSWERS, right = others()


@right("tokens_needed")
def searched(k, n, experts, chosen, peak, bandwidth, weight_bytes):
    """Doubled until it is enough, then halved in between."""

    def enough(tokens):
        rows = tokens * chosen
        nbytes = 2 * rows * (k + n) + experts * weight_bytes * k * n
        return 2 * rows * k * n / peak >= nbytes / bandwidth * (1 - 1e-12)

    high = 1
    while not enough(high):
        high *= 2
        if high > 2**40:
            return 0
    low = high // 2
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if enough(middle) else (middle, high)
    return high


@right("tokens_needed")
def exactly(k, n, experts, chosen, peak, bandwidth, weight_bytes):
    ridge = Fraction(peak) / Fraction(bandwidth)
    for_a_token = chosen * (2 * k * n - 2 * ridge * (k + n))
    weights = ridge * experts * Fraction(weight_bytes) * k * n
    return math.ceil(weights / for_a_token) if for_a_token > 0 else 0


@right("fit_link")
def by_slope(ranks, small, small_seconds, large, large_seconds):
    """A line through both: its slope and where it begins."""
    slope = (large_seconds - small_seconds) / (large - small)
    start = small_seconds - slope * small
    return start / (2 * ranks - 2), 2 * (ranks - 1) / ranks / slope, start / slope


@right("layer_seconds")
def by_a_list(batch, sequence, width, heads, gpus, shares_tokens, compute, memory, wire):
    t, w, m = batch * sequence, width, batch * heads / gpus
    own = t / gpus if shares_tokens else t
    shapes = [(1, t, w, 3 * w / gpus), (m, sequence, w / heads, sequence), (m, sequence, sequence, w / heads)]
    shapes += [(1, t, w / gpus, w), (1, t, w, 4 * w / gpus), (1, t, 4 * w / gpus, w)]
    operators = [(2 * c * a * b * d, 2 * c * (a * b + b * d + a * d)) for c, a, b, d in shapes]
    for nbytes in (8 * own * w, 9 * m * sequence**2, 16 * t * w / gpus, 14 * own * w):
        operators.append((0, nbytes))
    seconds = [max(flops / compute, nbytes / memory) for flops, nbytes in operators]
    return sum(seconds[:6]), sum(seconds[6:]), 8 * (gpus - 1) / gpus * t * w / wire


@right("layer_seconds")
def halves_of_all_reduces(batch, sequence, width, heads, gpus, shares_tokens, compute, memory, wire):
    """Four collectives instead of two, and each operator by itself."""
    tokens, per_gpu = batch * sequence, width / gpus
    numbers = tokens * width
    shared = gpus if shares_tokens else 1
    maps = batch * heads / gpus * sequence**2
    total = others = messages = 0.0
    for times, m, k, n in [
        (1, tokens, width, 3 * per_gpu),
        (batch * heads / gpus, sequence, width / heads, sequence),
        (batch * heads / gpus, sequence, sequence, width / heads),
        (1, tokens, per_gpu, width),
        (1, tokens, width, 4 * per_gpu),
        (1, tokens, 4 * per_gpu, width),
    ]:
        total += times * max(2 * m * k * n / compute, 2 * (m * k + k * n + m * n) / memory)
    for _ in ("attention", "MLP"):
        others += 4 * numbers / shared / memory + 7 * numbers / shared / memory
        messages += 2 * (gpus - 1) / gpus * 2 * numbers / wire
    others += (4 + 5) * maps / memory + 4 * tokens * 4 * per_gpu / memory
    return total, others, messages


@right("layer_seconds")
def bound_by_intensity(batch, sequence, width, heads, gpus, shares_tokens, compute, memory, wire):
    """By which side of the ridge a product lies on."""
    ridge, tokens, part = compute / memory, batch * sequence, width // gpus

    def product(m, k, n):
        flops, nbytes = 2.0 * m * k * n, 2.0 * (m * k + k * n + m * n)
        return flops / compute if flops / nbytes > ridge else nbytes / memory

    head, maps = width // heads, batch * (heads // gpus)
    seconds = product(tokens, width, 3 * part) + product(tokens, part, width)
    seconds += maps * (product(sequence, head, sequence) + product(sequence, sequence, head))
    seconds += product(tokens, width, 4 * part) + product(tokens, 4 * part, width)
    nbytes = 9 * maps * sequence**2 + 16 * tokens * part
    nbytes += 22 * (tokens // gpus if shares_tokens else tokens) * width
    return [seconds, nbytes / memory, 2 * 2 * (gpus - 1) / gpus * (2 * tokens * width) / wire]
