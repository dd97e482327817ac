"""Other right answers to the exercises of 13b_plans_and_measurements: they must pass."""

import math

from lab.registered import others

RIGHT_ANSWERS, right = others()


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


@right("cause_of_error")
def with_a_function_for_each_score(published, predicted):
    def score(seconds):
        errors = [(each - true) / true for each, true in zip(seconds, published)]
        pairs = [(a, b) for a in range(len(errors)) for b in range(len(errors)) if published[a] < published[b]]
        return {
            "mean": math.fsum(abs(each) for each in errors) / len(errors),
            "bias": math.fsum(errors) / len(errors),
            "worst": sorted(errors, key=abs)[-1],
            "order": sum(seconds[a] < seconds[b] for a, b in pairs),
        }

    scores, cause = {name: score(seconds) for name, seconds in predicted.items()}, "as it is"
    for name, its in scores.items():
        if its["order"] >= scores["as it is"]["order"] and its["mean"] < scores[cause]["mean"]:
            cause = name
    return {"scores": scores, "cause": cause}
