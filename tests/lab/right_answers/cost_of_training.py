"""Other right answers to the exercises of 03d_cost_of_training: they must pass."""

from lab.registered import others

RIGHT_ANSWERS, right = others()


@right("what_to_keep")
def three_ifs(layers, batch, sequence, width, gpus, parameters, room):
    states = 16 * parameters / gpus
    block = sequence * batch * width
    everything = 8 * block + 24 * block / gpus
    if states + layers * everything <= room:
        return "all", states + layers * everything
    cheap = layers * (4 * block + 16 * block / gpus) + (2 * block if gpus >= 4 else 8 * block / gpus)
    if states + cheap <= room:
        return "cheap", states + cheap
    last = (layers - 1) * 2 * block + everything
    return ("inputs only", states + last) if states + last <= room else ("nothing", 0)


@right("what_to_keep")
def as_a_list(layers, batch, sequence, width, gpus, parameters, room):
    left = room - 16 * parameters / gpus
    numbers = batch * sequence * width
    for way, each, again in [
        ("all", 8 + 24 / gpus, 0),
        ("cheap", 4 + 16 / gpus, max(2, 8 / gpus)),
        ("inputs only", 2, 6 + 24 / gpus),
    ]:
        taken = numbers * (layers * each + again)
        if taken <= left:
            return [way, taken + 16 * parameters / gpus]
    return ["nothing", 0.0]


@right("flops_per_token")
def part_by_part(layers, width, intermediate, heads, kv_heads, vocabulary, sequence, experts, chosen, recomputes):
    head = width // heads
    projections = 2 * width * head * (2 * heads + 2 * kv_heads)
    maps = 2 * sequence * width
    mlp = 6 * chosen * width * intermediate
    router = 2 * width * experts * (experts > 1)
    per_layer = projections + maps + mlp + router
    logits = 2 * width * vocabulary
    return 3 * (layers * per_layer + logits), layers * per_layer * (4 if recomputes else 3) + 3 * logits


@right("most_devices")
def from_above(batch, width, rate, latency, bandwidth, limit):
    """The first that hides, from the most devices down."""
    devices = limit
    while devices > 1:
        ring = 2 * (devices - 1) * latency + 8 * (devices - 1) / devices * width**2 / bandwidth
        if 4 * batch / devices * width**2 / rate >= ring:
            return devices
        devices -= 1
    return 1
