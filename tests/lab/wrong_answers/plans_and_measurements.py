"""Wrong answers to the exercises of 13b_plans_and_measurements: the property that rejects each, and what it is told."""

from lab.registered import collection, solved

from tinydist.planner import daly, young

WRONG_ANSWERS, wrong = collection()


# impossible_rows


@wrong("impossible_rows", "rows", "yours lets it pass")
def all_is_well(table):
    return {}


@wrong("impossible_rows", "rows", "returned a list")
def names_alone(table):
    return list(solved("impossible_rows")(table))


@wrong("impossible_rows", "values", "one GPU alone would take")
def seconds_of_one_gpu(table):
    found = solved("impossible_rows")(table)
    times = {row.name: row.gpus for row in table}
    return {name: (what, each * times[name] if what == "seconds" else each) for name, (what, each) in found.items()}


@wrong("impossible_rows", "columns", "a wrong MFU above 100")
def all_that_is_above_100(table):
    found = solved("impossible_rows")(table)
    return found | {row.name: ("all", None) for row in table if row.mfu > 100}


@wrong("impossible_rows", "own work", "the solution of impossible_rows")
def the_solution(table):
    from tinydist.syllabus.registry import find

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


# cause_of_error


@wrong("cause_of_error", "values", "a change that mends the seconds")
def the_least_mean(published, predicted):
    found = solved("cause_of_error")(published, predicted)
    means = {name: score["mean"] for name, score in found["scores"].items() if name != "as it is"}
    return found | {"cause": min(means, key=means.get)}


@wrong("cause_of_error", "values", "returned an object of type str")
def cause_alone(published, predicted):
    return str(solved("cause_of_error")(published, predicted)["cause"])


@wrong("cause_of_error", "own work", "tinydist.planner")
def of_the_planner(published, predicted):
    young(60.0, 1e6)
    return solved("cause_of_error")(published, predicted)
