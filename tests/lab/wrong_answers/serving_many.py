"""Wrong answers to the exercises of 14b_serving_many: each with the property that rejects it, and what it is told."""

from lab.registered import collection, solved

from tinydist.serving import BlockPool, expected_waste, speedup
from tinydist.syllabus.registry import find

WRONG_ANSWERS, wrong = collection()


# find_prefixes


@wrong("find_prefixes", "own work", "tinydist.serving")
def with_the_librarys_tables(blocks, size, events):
    BlockPool(blocks, size)
    return solved("find_prefixes")(blocks, size, events)


@wrong("find_prefixes", "found", "Found is '[0, 0, 2]'")
def ever_seen(blocks, size, events):
    """Prompts that came before, wherever their blocks are now."""
    found, seen = [], set()
    for prompt in (more[0] for what, _, *more in events if what == "begin"):
        keys = [tuple(prompt[:end]) for end in range(size, len(prompt), size)]
        found.append(size * next((i for i, key in enumerate(keys) if key not in seen), len(keys)))
        seen |= {tuple(prompt[:end]) for end in range(size, len(prompt) + 1, size)}
    return found, solved("find_prefixes")(blocks, size, events)[1]


@wrong("find_prefixes", "found", "found is '[0, 10]'")
def counts_tokens(blocks, size, events):
    found, tables = solved("find_prefixes")(blocks, size, events)
    return [each + each // size for each in found], tables


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


def waits_of(requests, start, end):
    return sorted(first - arrival for arrival, first, *_ in requests if start <= arrival < end)


@wrong("read_load_log", "p99", "100 requests of a steady state")
def one_place_too_far(*given):
    waits = waits_of(*given)
    return solved("read_load_log")(*given) | {"p99": waits[min(int(0.99 * len(waits)), len(waits) - 1)]}


@wrong("read_load_log", "p99", "The place is rounded down")
def the_nearest_place(*given):
    waits = waits_of(*given)
    return solved("read_load_log")(*given) | {"p99": waits[max(0, round(0.99 * len(waits)) - 1)]}


@wrong("read_load_log", "at end", "Who comes at that time has come")
def those_that_come_at_the_end_wait_outside(requests, start, end):
    there = sum(arrival < end < last for arrival, _, last, _ in requests[:-1])
    return solved("read_load_log")(requests, start, end) | {"at end": there}


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


# fastest_decode


@wrong("fastest_decode", "own work", "tinydist.serving")
def by_the_librarys_speedup(*given):
    speedup(0.5, 2, 0.1)
    return solved("fastest_decode")(*given)


@wrong("fastest_decode", "ranks", "These are the most ranks")
def as_many_as_there_are(*given):
    return solved("fastest_decode", "min(fits, key=lambda each: seconds(each, 1))", "8")(*given)


@wrong("fastest_decode", "drafts", "drafts is 8")
def as_many_drafts_as_allowed(*given):
    return solved("fastest_decode", "max(range(9), key=lambda each: rate(ranks, each))", "8")(*given)


@wrong("fastest_decode", "rate", "These are the tokens of the whole batch")
def of_all_sequences(model, gpu, batch, *more):
    found = solved("fastest_decode")(model, gpu, batch, *more)
    return found | {"tokens a second": batch * found["tokens a second"]}
