"""Other right answers to the exercises of 14b_serving_many: they must pass."""

import math
from fractions import Fraction
from statistics import mean

from lab.registered import others

RIGHT_ANSWERS, right = others()


@right("read_load_log")
def by_statistics(requests, start, end):
    seen = sorted((each for each in requests if start <= each[0] < end), key=lambda each: each[1] - each[0])
    ends = [Fraction(99, 100) <= Fraction(place + 1, len(seen)) for place in range(len(seen))]
    slowest = seen[ends.index(True)]
    return {
        "p99": slowest[1] - slowest[0],
        "TPOT": mean((last - first) / (tokens - 1) for _, first, last, tokens in seen if tokens >= 2),
        "per token": mean((last - arrival) / tokens for arrival, _, last, tokens in seen),
        "at start": len([each for each in requests if each[0] <= start and each[2] > start]),
        "at end": len([each for each in requests if each[0] <= end and each[2] > end]),
    }


@right("plan_batch")
def with_fractions(model, gpu, size, shared, own, goal):
    token = Fraction(2 * model.layers * model.kv_heads * model.head_dim * model.kept)
    weights, speed = model.parameters * model.weight, Fraction(gpu.bandwidth)
    whole, rest = divmod(shared, size)
    blocks = math.ceil(Fraction(rest + own, size))
    room = math.floor((Fraction(gpu.memory) - weights) / token / size) - whole
    memory = max(math.floor(Fraction(room, blocks)), 0)
    time = max(math.floor((Fraction(goal) * speed - weights) / token / (shared + own)), 0)
    least = min(memory, time)
    seconds = (weights + least * token * (shared + own)) / speed
    return {
        "tokens a second": float(least / seconds),
        "batch": least,
        "blocks": blocks,
        "in memory": memory,
        "in time": time,
    }


@right("plan_batch")
def in_tokens(model, gpu, size, shared, own, goal):
    token = 2 * model.kv_heads * model.head_dim * model.kept * model.layers
    weights = model.weight * model.parameters
    blocks = math.ceil((own + shared % size) / size)
    slots = (gpu.memory - weights) / token - shared // size * size
    memory = math.floor(slots / (blocks * size)) if slots > 0 else 0
    time = math.floor((goal - weights / gpu.bandwidth) * gpu.bandwidth / token / (shared + own))
    batch = max(0, min(memory, time))
    rate = batch / (weights / gpu.bandwidth + batch * (shared + own) * token / gpu.bandwidth)
    return dict(
        zip(("blocks", "in memory", "in time", "batch", "tokens a second"), (blocks, memory, max(time, 0), batch, rate))
    )
