"""Wrong answers to the exercises of 14b_serving_many: each with the property that rejects it, and what it is told."""

from lab.registered import collection, solved

from tinydist.lab.registry import find
from tinydist.serving import expected_waste

WRONG_ANSWERS, wrong = collection()


# read_load_log


@wrong("read_load_log", "own work", "tinydist.serving")
def reads_with_the_library(*given):
    expected_waste(3.0)
    return solved("read_load_log")(*given)


@wrong("read_load_log", "TPOT", "TPOT")
def longer_answers_count_more(requests, start, end):
    seen = [each for each in requests if start <= each[0] < end and each[3] > 1]
    gap = sum(last - first for _, first, last, _ in seen) / sum(tokens - 1 for *_, tokens in seen)
    return solved("read_load_log")(requests, start, end) | {"TPOT": gap}


# plan_batch


@wrong("plan_batch", "memory", "drawn, ")
def heads_of_the_listed_models(model, *more):
    listed = [each[0] for each in find("plan_batch").module.CASES]
    known = model if model in listed else model._replace(head_dim=128)
    return solved("plan_batch")(known, *more)


@wrong("plan_batch", "own work", "tinydist.serving")
def with_the_librarys_formula(*given):
    expected_waste(3.0)
    return solved("plan_batch")(*given)


@wrong("plan_batch", "rate", "Tokens a second is 9")
def by_the_goal(*given):
    found = solved("plan_batch")(*given)
    return found | {"tokens a second": found["batch"] / given[-1]}


@wrong("plan_batch", "time", "In time is 1")
def in_less_than_the_goal(*given):
    return solved("plan_batch")(*given[:-1], given[-1] * (1 - 1e-12))


@wrong("plan_batch", "memory", "In memory is 28")
def one_head(model, *more):
    return solved("plan_batch")(model._replace(kv_heads=1), *more)
