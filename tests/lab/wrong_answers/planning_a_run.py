"""Wrong answers to the exercises of 13_planning_a_run: with the property that rejects each, and what it is told."""

import math

from lab.registered import collection

from tinydist.planner import Plan, daly, find_model, young

WRONG_ANSWERS, wrong = collection()


# mfu_of_run


def counted(model, recompute, rate, gpus, peak, *, all_of=3, maps=4, heads=1, again=1, mfu=0):
    width = model.width
    matrices = width * width * (2 + 2 * model.kv_heads / model.heads) + (2 + model.gated) * width * model.inner
    layer = 2 * matrices + maps * model.sequence * width
    needed = all_of * (model.layers * layer + heads * 2 * width * model.vocabulary)
    more = {"none": 0, "selective": maps * model.sequence * width, "full": layer}[recompute] * model.layers * again
    part = rate / gpus / peak
    done = needed + more
    return {"model FLOPs": needed, "hardware FLOPs": done, "MFU": (needed + mfu * more) * part, "HFU": done * part}


@wrong("mfu_of_run", "values", "This is 6 FLOPs for each parameter, without scores")
def six_n(*arguments):
    return counted(*arguments, maps=0)


@wrong("mfu_of_run", "values", "The head is missing")
def layers_alone(*arguments):
    return counted(*arguments, heads=0)


@wrong("mfu_of_run", "values", "so it counts once")
def two_tables(*arguments):
    return counted(*arguments, heads=2)


@wrong("mfu_of_run", "values", "This is the forward pass alone")
def forward_alone(*arguments):
    return counted(*arguments, all_of=1)


@wrong("mfu_of_run", "values", "What is computed again makes it no better")
def hfu_sold_as_mfu(*arguments):
    return counted(*arguments, mfu=1)


@wrong("mfu_of_run", "values", "it counts once, and its backward is counted already")
def recomputed_and_its_backward(*arguments):
    return counted(*arguments, again=3)


@wrong("mfu_of_run", "values", "Selective recomputation runs two products again")
def scores_alone_again(model, recompute, *others):
    return counted(model, recompute, *others, again=0.5 if recompute == "selective" else 1)


@wrong("mfu_of_run", "values", "all pairs count, causal or not")
def half_of_the_pairs(*arguments):
    return counted(*arguments, maps=2)


@wrong("mfu_of_run", "values", "and the peak is that of one")
def of_one_gpu(model, recompute, rate, gpus, peak):
    return counted(model, recompute, rate, 1, peak)


@wrong("mfu_of_run", "values", "A gated MLP has three matrices")
def never_gated(model, *others):
    return counted(model._replace(gated=False), *others)


@wrong("mfu_of_run", "values", "it should return a dict: 'model FLOPs', 'hardware FLOPs', 'MFU', 'HFU'")
def mfu_alone(*arguments):
    return counted(*arguments)["MFU"]


@wrong("mfu_of_run", "own work", "you call tinydist.planner, where this is solved")
def by_the_planner(*arguments):
    find_model("GPT-3 175B").flops(1)
    return counted(*arguments)


# bytes_of_plan


def held(model, plan, rank, *, sizes=(2, 4, 12), early=0, around=10, flying=None, tables=(0, -1), maps=5):
    layers, width = model.layers // plan.pp, model.width
    numbers = layers * 12 * width**2 / plan.tp
    numbers += model.vocabulary * width / plan.tp * (rank in {at % plan.pp for at in tables})
    numbers += model.sequence * width * (rank == 0)
    shares = [plan.dp if plan.zero + early >= stage else 1 for stage in (3, 2, 1)]
    states = numbers * sum(size / share for size, share in zip(sizes, shares))
    cut = plan.tp if plan.sequence_parallel else 1
    of_maps = 0 if plan.selective else maps * model.heads * model.sequence / width / plan.tp
    kept = plan.microbatch * model.sequence * width * (around / cut + (34 - around) / plan.tp + of_maps)
    count = min(plan.pp - rank, plan.microbatches) if flying is None else flying(plan, rank)
    return {"states": states, "activations": layers * kept * count}


@wrong("bytes_of_plan", "states", "4 of 18 bytes are missing")
def two_moments_alone(*arguments):
    return held(*arguments, sizes=(2, 4, 8))


@wrong("bytes_of_plan", "states", "Gradients are summed up in fp32 here")
def gradients_in_16_bits(*arguments):
    return held(*arguments, sizes=(2, 2, 12))


@wrong("bytes_of_plan", "states", "Weights or gradients are sharded too early")
def a_stage_too_early(model, plan, rank):
    return held(model, plan, rank, early=1)


@wrong("bytes_of_plan", "states", "The last stage has a table of tokens, too")
def no_table_for_logits(*arguments):
    return held(*arguments, tables=(0,))


@wrong("bytes_of_plan", "activations", "all of them would be GPipe")
def as_gpipe(*arguments):
    return held(*arguments, flying=lambda plan, rank: plan.microbatches)


@wrong("bytes_of_plan", "activations", "Later places have fewer microbatches in flight")
def everywhere_as_many(*arguments):
    return held(*arguments, flying=lambda plan, rank: min(plan.pp, plan.microbatches))


@wrong("bytes_of_plan", "activations", "the last of them counts as well")
def warm_up_alone(*arguments):
    return held(*arguments, flying=lambda plan, rank: max(1, min(plan.pp - rank - 1, plan.microbatches)))


@wrong("bytes_of_plan", "activations", "Without sequence parallelism 10 of the 34 are whole")
def all_dealt_out(*arguments):
    return held(*arguments, around=0)


@wrong("bytes_of_plan", "activations", "Without recomputation the maps are kept")
def as_flash(*arguments):
    return held(*arguments, maps=0)


@wrong("bytes_of_plan", "activations", "activations take 666,894,336 bytes, 1.432 times what is right")
def maps_of_four_bytes(*arguments):
    return held(*arguments, maps=9)


@wrong("bytes_of_plan", "states", "where a dict is right: 'states', 'activations'")
def together(*arguments):
    return sum(held(*arguments).values())


@wrong("bytes_of_plan", "states", "states is an object of type str, where a number is right")
def as_text(*arguments):
    return {name: f"{nbytes / 2**30} GiB" for name, nbytes in held(*arguments).items()}


@wrong("bytes_of_plan", "own work", "you call tinydist.planner, where this is solved")
def as_the_planner_has_it(*arguments):
    Plan(tp=2)
    return held(*arguments)


# impossible_rows


def decided(table, *, near=0.02, percent=100, above=True, time=True, own=False):
    found = {}
    for row in table:
        pairs = [
            (row.seconds * row.tokens * row.gpus, row.batch),
            (row.tokens * row.flops, row.teraflops * 1e12),
            (row.teraflops * 1e12, row.mfu / percent * row.peak),
        ]
        steps, work, part = (abs(a - b) <= near * b for a, b in pairs)
        steps = steps or not time
        if steps and work and part:
            if above and row.mfu > percent:
                found[row.name] = "all", None
            continue
        column = "teraflops" if steps and not work else "tokens" if not work else "mfu" if steps else "seconds"
        values = {
            "tokens": row.batch / row.seconds / row.gpus,
            "teraflops": row.tokens * row.flops / 1e12,
            "mfu": percent * row.tokens * row.flops / row.peak,
            "seconds": row.batch / row.tokens / row.gpus,
        }
        found[row.name] = column, getattr(row, column) if own else values[column]
    return found


@wrong("impossible_rows", "rows", "MFU is 100 % at most")
def whatever_agrees(table):
    return decided(table, above=False)


@wrong("impossible_rows", "rows", "rounding takes less than 2 %")
def a_tenth(table):
    return decided(table, near=0.1)


@wrong("impossible_rows", "rows", "two sides that are less than 2 % apart agree")
def to_the_last_digit(table):
    return decided(table, near=1e-6)


@wrong("impossible_rows", "rows", "mfu is in percent")
def a_part(table):
    return decided(table, percent=1)


@wrong("impossible_rows", "columns", "An equation is not looked at: seconds tokens gpus = batch")
def seconds_trusted(table):
    return decided(table, time=False)


@wrong("impossible_rows", "values", "This is the row's own number, which is wrong")
def what_stands_there(table):
    return decided(table, own=True)


@wrong("impossible_rows", "columns", "Where TFLOP/s agree with neither tokens nor MFU")
def mfu_first(table):
    found = decided(table)
    rows = {row.name: row for row in table}
    for name, (column, _) in found.items():
        if column == "teraflops":
            found[name] = "mfu", 100 * rows[name].tokens * rows[name].flops / rows[name].peak
    return found


@wrong("impossible_rows", "rows", "yours lets it pass")
def all_is_well(table):
    return {}


@wrong("impossible_rows", "rows", "where a dict is right: the name of a row -> (column, value)")
def names_alone(table):
    return list(decided(table))


@wrong("impossible_rows", "rows", "where (column, value) is right: tokens, teraflops, mfu, seconds, all")
def columns_alone(table):
    return {name: column for name, (column, _) in decided(table).items()}


@wrong("impossible_rows", "own work", "you call the solution of impossible_rows")
def the_solution(table):
    from tinydist.lab.find import find

    return find("impossible_rows").reference(table)


# plan_for_budget


def chosen(plans, tokens, days, checkpoint, restart, between, *, of=math.sqrt, gpus=True, key=None, fits=None, lost=1):
    found = []
    for plan in plans:
        m = between / (plan.gpus if gpus else 1)
        t = of(2 * checkpoint * m)
        more = 1 + lost * (checkpoint / t + (t / 2 + restart) / m)
        took = tokens / plan.batch * plan.seconds * more / 86400
        money = took * 24 * plan.gpus * plan.price
        each = {"plan": plan.name, "interval": t, "goodput": 1 / more, "days": took, "money": money}
        if fits(plan, each) if fits else plan.peak <= plan.room and took <= days:
            found.append(each)
    return min(found, key=key or (lambda each: (each["money"], each["days"])), default=None)


@wrong("plan_for_budget", "numbers", "A run stops when any of its GPUs does")
def one_gpu_fails(*arguments):
    return chosen(*arguments, gpus=False)


@wrong("plan_for_budget", "numbers", "The root is missing")
def no_root(*arguments):
    return chosen(*arguments, of=lambda square: square)


@wrong("plan_for_budget", "numbers", "goodput of plan 'one node', on 8 GPUs, is 1")
def nothing_fails(*arguments):
    return chosen(*arguments, lost=0)


@wrong("plan_for_budget", "choice", "This one is done first. The cheapest is asked for")
def the_fastest(*arguments):
    return chosen(*arguments, key=lambda each: each["days"])


@wrong("plan_for_budget", "choice", "It has to be done within the days")
def some_day(*arguments):
    return chosen(*arguments, fits=lambda plan, each: plan.peak <= plan.room)


@wrong("plan_for_budget", "choice", "It has to fit")
def whatever_it_takes(*arguments):
    days = arguments[2]
    return chosen(*arguments, fits=lambda plan, each: each["days"] <= days)


@wrong("plan_for_budget", "choice", "A plan that takes all the room fits, too")
def less_than_the_room(*arguments):
    days = arguments[2]
    return chosen(*arguments, fits=lambda plan, each: plan.peak < plan.room and each["days"] <= days)


@wrong("plan_for_budget", "choice", "Of plans that cost as much, the one that is done first")
def by_money_alone(*arguments):
    return chosen(*arguments, key=lambda each: each["money"])


@wrong("plan_for_budget", "choice", "They have prices of their own, and the least money is asked for")
def fewest_gpu_hours(plans, *others):
    gpus = {plan.name: plan.gpus for plan in plans}
    return chosen(plans, *others, key=lambda each: (each["days"] * gpus[each["plan"]], each["days"]))


@wrong("plan_for_budget", "numbers", "the list plans has changed: it belongs to the caller")
def sorts_what_it_was_given(plans, *others):
    plans.sort(key=lambda plan: plan.price)
    return chosen(plans, *others)


@wrong("plan_for_budget", "choice", "is done in time")
def nothing(*arguments):
    return None


@wrong("plan_for_budget", "numbers", "it names plan 'F', and there are 'one node'")
def a_plan_of_its_own(*arguments):
    return chosen(*arguments) | {"plan": "F"}


@wrong("plan_for_budget", "numbers", "where a dict is right: 'interval', 'goodput', 'days', 'money'")
def without_goodput(*arguments):
    found = chosen(*arguments)
    found.pop("goodput")
    return found


@wrong("plan_for_budget", "own work", "you call tinydist.planner, where this is solved")
def of_the_library(*arguments):
    young(60.0, daly(60.0, 1e6))
    return chosen(*arguments)


@wrong("plan_for_budget", "runs", "With too few days (10 days): ValueError: min()")
def there_is_always_one(*arguments):
    found = [each for each in [chosen(*arguments)] if each]
    return min(found, key=lambda each: each["money"])
