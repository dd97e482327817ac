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


@right("impossible_rows")
def each_column_from_the_others(table):
    """The wrong column is the one without which all agrees."""

    def agree(row):
        left = (row.seconds * row.tokens * row.gpus, row.tokens * row.flops, row.mfu / 100 * row.peak)
        right = (row.batch, row.teraflops * 1e12, row.teraflops * 1e12)
        return all(math.isclose(a, b, rel_tol=0.02) for a, b in zip(left, right))

    found = {}
    for row in table:
        if agree(row):
            if row.mfu > 100:
                found[row.name] = ("all", None)
            continue
        tries = {
            "seconds": row.batch / row.tokens / row.gpus,
            "tokens": row.batch / row.seconds / row.gpus,
            "teraflops": row.tokens * row.flops / 1e12,
            "mfu": row.teraflops * 1e14 / row.peak,
        }
        for column, value in tries.items():
            if agree(row._replace(**{column: value})):
                found[row.name] = (column, value)
                break
    return found


@right("impossible_rows")
def by_a_vote(table):
    """Each column says how many tokens a second a GPU does; who stands apart from the others is wrong."""
    found = {}
    for row in table:
        votes = {
            "tokens": row.tokens,
            "teraflops": row.teraflops * 1e12 / row.flops,
            "mfu": row.mfu / 100 * row.peak / row.flops,
            "seconds": row.batch / row.seconds / row.gpus,
        }
        middle = sum(sorted(votes.values())[1:3]) / 2
        odd = [name for name, vote in votes.items() if abs(vote / middle - 1) > 0.025]
        if odd:
            right = {
                "tokens": middle,
                "teraflops": middle * row.flops / 1e12,
                "mfu": 100 * middle * row.flops / row.peak,
                "seconds": row.batch / middle / row.gpus,
            }
            found[row.name] = [odd[0], right[odd[0]]]
        elif middle * row.flops > row.peak:
            found[row.name] = ["all", None]
    return found


@right("impossible_rows")
def with_ifs(table):
    found = {}
    for row in table:
        steps = abs(row.batch / (row.seconds * row.tokens * row.gpus) - 1) > 0.02
        work = abs(row.tokens * row.flops / 1e12 / row.teraflops - 1) > 0.02
        peak = abs(row.teraflops * 1e12 / row.peak * 100 / row.mfu - 1) > 0.02
        if steps and work:
            found[row.name] = "tokens", row.teraflops * 1e12 / row.flops
        elif work and peak:
            found[row.name] = "teraflops", row.mfu * row.peak / 1e14
        elif steps:
            found[row.name] = "seconds", row.batch / row.gpus / row.tokens
        elif peak:
            found[row.name] = "mfu", 100 * row.teraflops * 1e12 / row.peak
        elif row.teraflops * 1e12 > row.peak:
            found[row.name] = "all", None
    return found


@right("plan_for_budget")
def in_hours(plans, tokens, days, checkpoint, restart, between_failures):
    best, least = None, None
    for plan in plans:
        if plan.peak > plan.room:
            continue
        between = between_failures / plan.gpus
        t = (2 * checkpoint * between) ** 0.5
        good = 1 / (1 + checkpoint / t + (0.5 * t + restart) / between)
        hours = plan.seconds * tokens / plan.batch / good / 3600
        if hours > 24 * days:
            continue
        rank = (hours * plan.gpus * plan.price, hours)
        if least is None or rank < least:
            least = rank
            best = dict(plan=plan.name, interval=t, goodput=good, days=hours / 24, money=rank[0])
    return best


@right("plan_for_budget")
def sorted_by_money(plans, tokens, days, checkpoint, restart, between_failures):
    """What is lost at the best interval is sqrt(2 C / M) + R / M."""

    def figures(plan):
        m = between_failures / plan.gpus
        longer = 1 + math.sqrt(2 * checkpoint / m) + restart / m
        took = math.ceil(tokens / plan.batch) * plan.seconds * longer / 86400
        money = plan.gpus * plan.price * took * 24
        return {
            "plan": plan.name,
            "interval": math.sqrt(2 * checkpoint * m),
            "goodput": 1 / longer,
            "days": took,
            "money": money,
        }

    fitting = [figures(plan) for plan in plans if not plan.peak > plan.room]
    in_time = [each for each in fitting if each["days"] <= days]
    in_time.sort(key=lambda each: (each["money"], each["days"]))
    return in_time[0] if in_time else None


@right("plan_for_budget")
def failures_of_the_whole_run(plans, tokens, days, checkpoint, restart, between_failures):
    """Counted, with what each of them costs."""
    found = []
    for place, plan in enumerate(plans):
        work = tokens // plan.batch * plan.seconds
        rate = plan.gpus / between_failures
        interval = math.sqrt(2 * checkpoint / rate)
        checkpoints, failures = work / interval, work * rate
        seconds = work + checkpoints * checkpoint + failures * (interval / 2 + restart)
        money = plan.price * plan.gpus * seconds / 3600
        will_do = plan.room - plan.peak >= 0 and seconds / 86400 <= days
        if will_do:
            found.append((money, seconds, place, plan.name, interval, work / seconds))
    if not found:
        return None
    money, seconds, _, name, interval, good = min(found)
    return {"plan": name, "money": money, "days": seconds / 86400, "goodput": good, "interval": interval}
