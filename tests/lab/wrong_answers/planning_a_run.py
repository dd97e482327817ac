"""Wrong answers to the exercises of 13_planning_a_run: with the property that rejects each, and what it is told."""

from lab.registered import collection, solved

from tinydist.planner import Plan, daly, find_model, young

WRONG_ANSWERS, wrong = collection()


# mfu_of_run


@wrong("mfu_of_run", "values", "a GPT of 7 layers")
def recomputed_and_its_backward(*arguments):
    return solved("mfu_of_run", "model.layers * layer}", "3 * model.layers * layer}")(*arguments)


@wrong("mfu_of_run", "values", "a gated MLP of 200")
def never_gated(model, *others):
    return solved("mfu_of_run")(model._replace(gated=False), *others)


@wrong("mfu_of_run", "values", "returned an object of type float")
def mfu_alone(*arguments):
    return solved("mfu_of_run")(*arguments)["MFU"]


@wrong("mfu_of_run", "own work", "tinydist.planner")
def by_the_planner(*arguments):
    find_model("GPT-3 175B").flops(1)
    return solved("mfu_of_run")(*arguments)


# bytes_of_plan


@wrong("bytes_of_plan", "activations", "1.432 times what")
def maps_of_four_bytes(*arguments):
    return solved("bytes_of_plan", "5 * model.heads", "9 * model.heads")(*arguments)


@wrong("bytes_of_plan", "states", "an object of type str")
def as_text(*arguments):
    return {name: f"{nbytes / 2**30} GiB" for name, nbytes in solved("bytes_of_plan")(*arguments).items()}


@wrong("bytes_of_plan", "own work", "tinydist.plan")
def as_the_planner_has_it(*arguments):
    Plan(tp=2)
    return solved("bytes_of_plan")(*arguments)


@wrong("bytes_of_plan", "states", "layers of ")
def the_vocabularies_that_are_listed(*arguments):
    listed = "(51200 if model.width > 1024 else 32000)"
    return solved("bytes_of_plan", "model.vocabulary", listed)(*arguments)


# impossible_rows


@wrong("impossible_rows", "rows", "yours lets it pass")
def all_is_well(table):
    return {}


@wrong("impossible_rows", "rows", "returned an object of type list")
def names_alone(table):
    return list(solved("impossible_rows")(table))


@wrong("impossible_rows", "rows", "HFU sold as MFU")
def columns_alone(table):
    return {name: column for name, (column, _) in solved("impossible_rows")(table).items()}


@wrong("impossible_rows", "columns", "a wrong MFU above 100")
def all_that_is_above_100(table):
    found = solved("impossible_rows")(table)
    return found | {row.name: ("all", None) for row in table if row.mfu > 100}


@wrong("impossible_rows", "own work", "the solution of impossible_rows")
def the_solution(table):
    from tinydist.lab.registry import find

    return find("impossible_rows").reference(table)


# plan_for_budget


@wrong("plan_for_budget", "choice", "the cheapest has no byte to spare")
def less_than_the_room(*arguments):
    return solved("plan_for_budget", "plan.peak <= plan.room", "plan.peak < plan.room")(*arguments)


@wrong("plan_for_budget", "numbers", "plans has changed")
def sorts_what_it_was_given(plans, *others):
    plans.sort(key=lambda plan: plan.price)
    return solved("plan_for_budget")(plans, *others)


@wrong("plan_for_budget", "choice", "is done in time")
def nothing(*arguments):
    return None


@wrong("plan_for_budget", "own work", "tinydist.planner")
def of_the_library(*arguments):
    young(60.0, daly(60.0, 1e6))
    return solved("plan_for_budget")(*arguments)


@wrong("plan_for_budget", "numbers", "A batch is of all GPUs together")
def a_batch_on_each_gpu(*arguments):
    return solved("plan_for_budget", "tokens / plan.batch", "tokens / (plan.batch * plan.gpus)")(*arguments)
