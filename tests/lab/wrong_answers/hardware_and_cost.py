"""Wrong answers to the exercises of 03_hardware_and_cost: with the property that rejects each, and what it is told."""

import math
from dataclasses import replace

from lab.registered import collection

from tinydist.hardware import DEVICES, costs, find_device, published

WRONG_ANSWERS, wrong = collection()


# rows_needed


@wrong("rows_needed", "values", "where 173 is right")
def the_ridge_itself(k, n, peak, bandwidth, size):
    """Of weights that are read once, and nothing else."""
    return math.ceil(peak / bandwidth)


@wrong("rows_needed", "values", "Only the weights are counted")
def weights_alone(k, n, peak, bandwidth, size):
    m = 1
    while 2 * m * k * n / peak < size * k * n / bandwidth:
        m += 1
    return m


@wrong("rows_needed", "values", "The result counts, too")
def nothing_written(k, n, peak, bandwidth, size):
    ridge = peak / bandwidth
    left = 2 / (ridge * size) - 1 / n
    return math.ceil(1 / left) if left > 0 else 0


@wrong("rows_needed", "values", "A product has 2 m k n FLOPs")
def multiplications_alone(k, n, peak, bandwidth, size):
    left = bandwidth / (size * peak) - 1 / k - 1 / n
    return math.ceil(1 / left) if left > 0 else 0


@wrong("rows_needed", "values", "the answer is 0")
def whatever_comes_out(k, n, peak, bandwidth, size):
    ridge = peak / bandwidth
    return math.ceil(ridge * size * k * n / (2 * k * n - ridge * size * (k + n) or 1e-9))


@wrong("rows_needed", "values", "Round up")
def rounded(k, n, peak, bandwidth, size):
    left = 2 * bandwidth / (size * peak) - 1 / k - 1 / n
    return int(1 / left + 1e-9) if left > 1e-15 else 0


@wrong("rows_needed", "values", "A number has `size` bytes, not always 2")
def always_two_bytes(k, n, peak, bandwidth, size):
    left = bandwidth / peak - 1 / k - 1 / n
    return math.ceil(1 / left - 1e-9) if left > 1e-15 else 0


@wrong("rows_needed", "own work", "here it is arithmetic")
def by_the_library(k, n, peak, bandwidth, size):
    device = replace(DEVICES["A100 80GB"], peak={"bfloat16": peak}, memory_bandwidth=bandwidth)
    for m in range(1, 400):
        flops = 2 * m * k * n
        if costs.kernel_seconds(device, flops, size * (m * k + k * n + m * n), "bfloat16") <= flops / peak:
            return m
    return 0


# layer_seconds


@wrong("layer_seconds", "values", "where 0.00717719 is right")
def what_was_published(batch, sequence, width, heads, gpus, shares_tokens, compute, memory, wire):
    return 7.2e-3 if shares_tokens else 7.7e-3


@wrong("layer_seconds", "own work", "here it is arithmetic")
def looked_up(batch, sequence, width, heads, gpus, shares_tokens, compute, memory, wire):
    find_device("A100 80GB")
    return published.LAYERS["22B"].forward


@wrong("layer_seconds", "values", "where 0.00717719 is right")
def arithmetic_alone(batch, sequence, width, heads, gpus, shares_tokens, compute, memory, wire):
    tokens = batch * sequence
    return 24 * tokens * width**2 / gpus / compute


def of(batch, sequence, width, heads, gpus, shares_tokens, compute, memory, wire, *, longer=max, masks=1, messages=2):
    t, w, m = batch * sequence, width, batch * heads / gpus
    own = t / gpus if shares_tokens else t
    shapes = [(1, t, w, 3 * w / gpus), (m, sequence, w / heads, sequence), (m, sequence, sequence, w / heads)]
    shapes += [(1, t, w / gpus, w), (1, t, w, 4 * w / gpus), (1, t, 4 * w / gpus, w)]
    total = sum(longer(2 * c * a * b * d / compute, 2 * c * (a * b + b * d + a * d) / memory) for c, a, b, d in shapes)
    total += ((8 + 12 + 2 * masks) * own * w + (8 + masks) * m * sequence**2 + 16 * t * w / gpus) / memory
    return total + messages * 4 * (gpus - 1) / gpus * t * w / wire


@wrong("layer_seconds", "values", "An operator takes the longer of its arithmetic and its bytes")
def one_after_the_other(*arguments):
    return of(*arguments, longer=lambda arithmetic, moved: arithmetic + moved)


@wrong("layer_seconds", "values", "In seconds, not in milliseconds")
def milliseconds(*arguments):
    return 1e3 * of(*arguments)


@wrong("layer_seconds", "values", "A number of a dropout mask has 1 byte")
def masks_of_two_bytes(*arguments):
    return of(*arguments, masks=2)


@wrong("layer_seconds", "values", "The messages take half of what is right")
def one_all_reduce(*arguments):
    return of(*arguments, messages=1)


@wrong("layer_seconds", "values", "each GPU normalizes and adds only its own")
def tokens_never_shared(*arguments):
    batch, sequence, width, heads, gpus, _, *speeds = arguments
    return of(batch, sequence, width, heads, gpus, False, *speeds)


# what_to_keep


def chosen(layers, batch, sequence, width, heads, gpus, parameters, room, *, states=16, again=1.0, order=1, of_maps=5):
    sbh = sequence * batch * width
    whole = sbh * (10 + 24 / gpus + of_maps * heads * sequence / width / gpus)
    ways = [("all", whole), ("no maps", sbh * (10 + 24 / gpus)), ("inputs only", 2 * sbh)]
    for way, kept in ways[::order]:
        peak = states * parameters / gpus + layers * kept + again * (whole - kept)
        if peak <= room:
            return way, peak
    return "nothing", 0


@wrong("what_to_keep", "values", "Parameters, gradients and Adam are missing")
def activations_alone(*arguments):
    return chosen(*arguments, states=0)


@wrong("what_to_keep", "values", "computed again, and then it is there whole")
def at_rest(*arguments):
    return chosen(*arguments, again=0)


@wrong("what_to_keep", "values", "the one that costs the least time")
def the_smallest(*arguments):
    return chosen(*arguments, order=-1)


@wrong("what_to_keep", "values", "where 'no maps' is right")
def always_all(*arguments):
    return "all", 1e9


@wrong("what_to_keep", "values", "sequences of 2,048: the way is 'inputs only'")
def a_way_without_its_bytes(*arguments):
    """Nothing says which mistake led to it: three ways are too few for that."""
    return "inputs only", 1


@wrong("what_to_keep", "values", "where 2 things are right: the way, the number of bytes")
def the_way_alone(*arguments):
    return chosen(*arguments)[0]


@wrong("layer_seconds", "values", "QKV is one product")
def three_products_for_qkv(batch, sequence, width, heads, gpus, shares_tokens, compute, memory, wire):
    tokens = batch * sequence

    def product(count, m, k, n):
        return count * max(2 * m * k * n / compute, 2 * (m * k + k * n + m * n) / memory)

    maps = batch * heads / gpus
    d = width / heads
    seconds = product(3, tokens, width, width / gpus)
    seconds += product(maps, sequence, d, sequence)
    seconds += product(maps, sequence, sequence, d)
    seconds += product(1, tokens, width / gpus, width)
    seconds += product(1, tokens, width, 4 * width / gpus)
    seconds += product(1, tokens, 4 * width / gpus, width)
    numbers = maps * sequence * sequence
    seconds += (4 + 5) * numbers / memory
    seconds += 4 * tokens * 4 * width / gpus / memory
    share = tokens * width / (gpus if shares_tokens else 1)
    seconds += 2 * 4 * share / memory
    seconds += 2 * 7 * share / memory
    seconds += 2 * 2 * (gpus - 1) / gpus * 2 * tokens * width / wire
    return seconds


@wrong("what_to_keep", "values", "What fills the room to the last byte fits, too")
def less_than_the_room(layers, batch, sequence, width, heads, gpus, parameters, room):
    one = sequence * batch * width
    rest = one * (10 + 24 / gpus)
    maps = one * 5 * heads * sequence / (width * gpus)
    states = 16 * parameters / gpus
    peaks = {
        "all": states + layers * (rest + maps),
        "no maps": states + layers * rest + maps,
        "inputs only": states + (layers - 1) * 2 * one + rest + maps,
    }
    for name, nbytes in peaks.items():
        if nbytes < room:
            return name, nbytes
    return "nothing", 0
