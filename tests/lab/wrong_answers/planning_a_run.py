"""Wrong answers to the exercises of 13_planning_a_run: with the property that rejects each, and what it is told."""

from lab.registered import collection, solved

from tinydist.hardware import product_time
from tinydist.planner import Plan, find_model

WRONG_ANSWERS, wrong = collection()


# mfu_of_run


@wrong("mfu_of_run", "values", "a GPT of 7 layers")
def recomputed_and_its_backward(*arguments):
    return solved("mfu_of_run", "model.layers * layer}", "3 * model.layers * layer}")(*arguments)


@wrong("mfu_of_run", "values", "a gated MLP of 200")
def never_gated(model, *others):
    return solved("mfu_of_run")(model._replace(gated=False), *others)


@wrong("mfu_of_run", "values", "returned a number")
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


# top_of_tooth


@wrong("top_of_tooth", "values", "4 SMs")
def the_most_tokens(columns, most, step, sms):
    tiles = min(-(-most // 256) * -(-columns // 128), -(-most // 128) * -(-columns // 256))
    waves = -(-tiles // sms)
    return {"tokens": most, "waves": waves, "wasted": 1 - most * columns / (waves * sms * 256 * 128)}


@wrong("top_of_tooth", "values", "returned a number")
def tokens_alone(*arguments):
    return solved("top_of_tooth")(*arguments)["tokens"]


@wrong("top_of_tooth", "own work", "tinydist.hardware")
def by_the_clock_of_products(*arguments):
    product_time("A100", 1, 64, 64, 64)
    return solved("top_of_tooth")(*arguments)
