"""Other right answers to the exercises of 03_hardware_and_cost: they must pass."""

import math
from fractions import Fraction

from lab.registered import others

RIGHT_ANSWERS, right = others()


@right("rows_needed")
def searched(k, n, peak, bandwidth, size):
    """Doubled until it is enough, then halved in between."""

    def enough(m):
        return 2 * m * k * n / peak >= size * (m * k + k * n + m * n) / bandwidth

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


@right("rows_needed")
def one_divided_by_all(k, n, peak, bandwidth, size):
    """Of the intensity 2 / (size (1/m + 1/n + 1/k))."""
    left = 2 * bandwidth / (size * peak) - 1 / k - 1 / n
    return math.ceil(1 / left - 1e-9) if left > 1e-15 else 0


@right("rows_needed")
def exactly(k, n, peak, bandwidth, size):
    ridge = Fraction(peak) / Fraction(bandwidth) * size / 2
    left = k * n - ridge * (k + n)
    return -int(-(ridge * k * n) // left) if left > 0 else 0


@right("layer_seconds")
def by_a_list(batch, sequence, width, heads, gpus, shares_tokens, compute, memory, wire):
    t, w, m = batch * sequence, width, batch * heads / gpus
    own = t / gpus if shares_tokens else t
    shapes = [(1, t, w, 3 * w / gpus), (m, sequence, w / heads, sequence), (m, sequence, sequence, w / heads)]
    shapes += [(1, t, w / gpus, w), (1, t, w, 4 * w / gpus), (1, t, 4 * w / gpus, w)]
    operators = [(2 * c * a * b * d, 2 * c * (a * b + b * d + a * d)) for c, a, b, d in shapes]
    for nbytes in (8 * own * w, 9 * m * sequence**2, 16 * t * w / gpus, 14 * own * w):
        operators.append((0, nbytes))
    seconds = sum(max(flops / compute, nbytes / memory) for flops, nbytes in operators)
    return seconds + 8 * (gpus - 1) / gpus * t * w / wire


@right("layer_seconds")
def halves_of_all_reduces(batch, sequence, width, heads, gpus, shares_tokens, compute, memory, wire):
    """Four collectives instead of two, and each operator by itself."""
    tokens, per_gpu = batch * sequence, width / gpus
    numbers = tokens * width
    shared = gpus if shares_tokens else 1
    maps = batch * heads / gpus * sequence**2
    total = 0.0
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
        total += 4 * numbers / shared / memory + 7 * numbers / shared / memory
        total += 2 * (gpus - 1) / gpus * 2 * numbers / wire
    return total + (4 + 5) * maps / memory + 4 * tokens * 4 * per_gpu / memory


@right("layer_seconds")
def bound_by_intensity(batch, sequence, width, heads, gpus, shares_tokens, compute, memory, wire):
    """By which side of the ridge a product lies on."""
    ridge, tokens, part = compute / memory, batch * sequence, width // gpus

    def product(m, k, n):
        flops, nbytes = 2.0 * m * k * n, 2.0 * (m * k + k * n + m * n)
        return flops / compute if flops / nbytes > ridge else nbytes / memory

    head, maps = width // heads, batch * (heads // gpus)
    seconds = product(tokens, width, 3 * part) + product(tokens, part, width)
    seconds += maps * (product(sequence, head, sequence) + product(sequence, sequence, head) + 9 * sequence**2 / memory)
    seconds += product(tokens, width, 4 * part) + product(tokens, 4 * part, width) + 16 * tokens * part / memory
    seconds += 22 * (tokens // gpus if shares_tokens else tokens) * width / memory
    return seconds + 2 * 2 * (gpus - 1) / gpus * (2 * tokens * width) / wire


@right("what_to_keep")
def three_ifs(layers, batch, sequence, width, heads, gpus, parameters, room):
    states = 16 * parameters / gpus
    block = sequence * batch * width
    maps = 5 * heads * sequence**2 * batch / gpus
    rest = 10 * block + 24 * block / gpus
    if states + layers * (rest + maps) <= room:
        return "all", states + layers * (rest + maps)
    if states + layers * rest + maps <= room:
        return "no maps", states + layers * rest + maps
    if states + (layers - 1) * 2 * block + rest + maps <= room:
        return "inputs only", states + (layers - 1) * 2 * block + rest + maps
    return "nothing", 0


@right("what_to_keep")
def the_largest_that_fits(layers, batch, sequence, width, heads, gpus, parameters, room):
    """Whoever keeps more computes less, as long as the peaks have the same order."""
    sbh = sequence * batch * width
    each = {"all": 10 + 24 / gpus + 5 * heads * sequence / width / gpus, "no maps": 10 + 24 / gpus, "inputs only": 2}
    peaks = {way: 16 * parameters / gpus + ((layers - 1) * kept + each["all"]) * sbh for way, kept in each.items()}
    fitting = [(peak, -place, way) for place, (way, peak) in enumerate(peaks.items()) if peak <= room]
    if not fitting:
        return "nothing", 0
    peak, _, way = max(fitting)
    return way, peak


@right("what_to_keep")
def as_a_list(layers, batch, sequence, width, heads, gpus, parameters, room):
    sbh = sequence * batch * width
    without = sbh * (34 / gpus + 10 * (gpus - 1) / gpus)
    with_maps = without + 5 * heads / gpus * batch * sequence**2
    for way, kept in [("all", with_maps), ("no maps", without), ("inputs only", sbh + sbh)]:
        peak = 16 * parameters / gpus + layers * kept + (with_maps - kept)
        if peak <= room:
            return [way, peak]
    return ["nothing", 0.0]
