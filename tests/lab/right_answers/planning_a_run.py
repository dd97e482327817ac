"""Other right answers to the exercises of 13_planning_a_run: they must pass."""

import math
from fractions import Fraction

from lab.registered import others

RIGHT_ANSWERS, right = others()


@right("mfu_of_run")
def six_for_each_parameter(model, recompute, tokens_per_second, gpus, peak):
    """6 N and 12 L T D, with N the parameters of products."""
    d = model.width
    attention = d * d * (2 + 2 * model.kv_heads / model.heads)
    mlp = d * model.inner * (3 if model.gated else 2)
    n = model.layers * (attention + mlp)
    pairs = 12 * model.layers * model.sequence * d
    needed = 6 * n + pairs + 6 * d * model.vocabulary
    done = needed
    if recompute == "selective":
        done += pairs / 3
    elif recompute == "full":
        done += 2 * n + pairs / 3
    rate = tokens_per_second / gpus
    return {"model FLOPs": needed, "hardware FLOPs": done, "MFU": rate * needed / peak, "HFU": rate * done / peak}


@right("mfu_of_run")
def by_a_step(model, recompute, tokens_per_second, gpus, peak):
    """Of a whole sequence, product by product."""
    t, d, h = model.sequence, model.width, model.heads
    e = d // h
    forward = 0
    scores = 0
    for _ in range(model.layers):
        forward += 2 * t * d * d + 2 * 2 * t * d * model.kv_heads * e + 2 * t * d * d
        scores += h * (2 * t * e * t + 2 * t * t * e)
        forward += (2 if model.gated else 1) * 2 * t * d * model.inner + 2 * t * model.inner * d
    head = 2 * t * d * model.vocabulary
    needed = 3 * (forward + scores + head)
    again = scores if recompute == "selective" else forward + scores if recompute == "full" else 0
    seconds = t / tokens_per_second * gpus * peak
    return {
        "HFU": (needed + again) / seconds,
        "MFU": needed / seconds,
        "hardware FLOPs": (needed + again) / t,
        "model FLOPs": needed / t,
    }


@right("mfu_of_run")
def exactly(model, recompute, tokens_per_second, gpus, peak):
    d, kv = model.width, Fraction(model.kv_heads, model.heads)
    matrices = 2 * d * d + 2 * kv * d * d + (2 + model.gated) * d * model.inner
    maps = 4 * model.sequence * d
    again = Fraction({"none": 0, "selective": maps, "full": 2 * matrices + maps}[recompute]) * model.layers
    needed = 3 * model.layers * (2 * matrices + maps) + 6 * d * model.vocabulary
    part = Fraction(tokens_per_second) / gpus / Fraction(peak)
    return {
        "model FLOPs": int(needed),
        "hardware FLOPs": int(needed + again),
        "MFU": float(needed * part),
        "HFU": float((needed + again) * part),
    }


@right("bytes_of_plan")
def with_biases_and_norms(model, plan, rank):
    """To the last parameter."""
    h, t = model.width, plan.tp
    block = (12 * h * h + 7 * h) / t + 6 * h
    numbers = model.layers / plan.pp * block
    first, last = rank == 0, rank == plan.pp - 1
    numbers += (first or last) * math.ceil(model.vocabulary / t) * h + first * model.sequence * h + last * 2 * h
    of_one = [2, 4, 12]
    for place in range(plan.zero):
        of_one[2 - place] /= plan.dp
    cut = t if plan.sequence_parallel else 1
    sbh = model.sequence * plan.microbatch * h
    kept = sbh * (10 / cut + 24 / t)
    if not plan.selective:
        kept += 5 * model.heads * model.sequence**2 * plan.microbatch / t
    flying = plan.microbatches if plan.microbatches < plan.pp - rank else plan.pp - rank
    return {"states": sum(of_one) * numbers, "activations": kept * model.layers / plan.pp * flying}


@right("bytes_of_plan")
def tensor_by_tensor(model, plan, rank):
    """What each operator of a layer keeps, in numbers of 2 bytes and masks of 1; 1F1B is played."""
    tokens = plan.microbatch * model.sequence
    here = tokens / plan.tp if plan.sequence_parallel else tokens
    h = model.width
    inputs = 2 * here * h * 4
    masks = here * h * 2
    inside = 2 * tokens * h / plan.tp * (3 + 1 + 4 + 4)
    maps = 0 if plan.selective else model.heads / plan.tp * model.sequence**2 * plan.microbatch * (2 + 2 + 1)
    layers = model.layers // plan.pp
    warm_up = min(plan.pp - rank - 1, plan.microbatches)
    flying = most = warm_up
    for _ in range(plan.microbatches - warm_up):
        flying += 1
        most = max(most, flying)
        flying -= 1
    parameters = layers * (4 + 8) * h * h / plan.tp
    if rank in (0, plan.pp - 1):
        parameters += model.vocabulary * h / plan.tp
    if rank == 0:
        parameters += model.sequence * h
    of_one = {0: 18, 1: 6 + 12 / plan.dp, 2: 2 + 16 / plan.dp, 3: 18 / plan.dp}[plan.zero]
    return {"activations": int(most * layers * (inputs + masks + inside + maps)), "states": int(parameters * of_one)}


@right("bytes_of_plan")
def by_34(model, plan, rank):
    sbh = model.sequence * plan.microbatch * model.width
    whole = 34 * sbh + 5 * model.heads * model.sequence**2 * plan.microbatch
    maps = 5 * model.heads * model.sequence**2 * plan.microbatch
    a_layer = whole / plan.tp - plan.selective * maps / plan.tp
    if not plan.sequence_parallel:
        a_layer += 10 * sbh * (1 - 1 / plan.tp)
    stage = [model.layers // plan.pp * 12 * model.width**2 / plan.tp for _ in range(plan.pp)]
    stage[0] += model.sequence * model.width
    for end in {0, plan.pp - 1}:
        stage[end] += model.vocabulary * model.width / plan.tp
    shares = [plan.dp if plan.zero > at else 1 for at in (2, 1, 0)]
    states = sum(nbytes * stage[rank] / share for nbytes, share in zip((2, 4, 12), shares))
    flying = min(plan.microbatches, len(stage[rank:]))
    return {"states": states, "activations": flying * (model.layers // plan.pp) * a_layer}


@right("top_of_tooth")
def by_the_best_of_a_list(columns, most, step, sms):
    def waves(tokens):
        tiles = min(-(-tokens // a) * -(-columns // b) for a, b in ((256, 128), (128, 256)))
        return -(-tiles // sms)

    best = max(range(step, most + 1, step), key=lambda tokens: Fraction(tokens, waves(tokens)))
    return {"tokens": best, "waves": waves(best), "wasted": 1 - best * columns / (waves(best) * sms * 2**15)}
