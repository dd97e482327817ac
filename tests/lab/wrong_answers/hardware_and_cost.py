"""Wrong answers to the exercises of 03_hardware_and_cost: with the property that rejects each, and what it is told."""

from dataclasses import replace

from lab.registered import collection, solved

from tinydist.hardware import DEVICES, costs, find_device, published

WRONG_ANSWERS, wrong = collection()


# tokens_needed


@wrong("tokens_needed", "own work", "tinydist.hardware")
def by_the_library(k, n, experts, chosen, peak, bandwidth, weight_bytes):
    device = replace(DEVICES["A100 80GB"], peak={"bfloat16": peak}, memory_bandwidth=bandwidth)
    for tokens in range(1, 400):
        flops = 2 * tokens * chosen * k * n
        nbytes = 2 * tokens * chosen * (k + n) + experts * weight_bytes * k * n
        if costs.kernel_time(device, flops, nbytes, "bfloat16") <= flops / peak:
            return tokens
    return 0


@wrong("tokens_needed", "values", "where 173 is right")
def the_ridge(k, n, experts, chosen, peak, bandwidth, weight_bytes):
    return -int(-peak // bandwidth)


# fit_link


@wrong("fit_link", "values", "alpha")
def the_small_one_is_latency(ranks, small, small_seconds, large, large_seconds):
    bandwidth = 2 * (ranks - 1) / ranks * large / large_seconds
    return small_seconds, bandwidth, small_seconds * bandwidth


@wrong("fit_link", "values", "returned")
def two_of_three(*arguments):
    return solved("fit_link")(*arguments)[:2]


# layer_seconds


@wrong("layer_seconds", "values", "returned")
def what_was_published(batch, sequence, width, heads, gpus, shares_tokens, compute, memory, wire):
    return 7.2e-3 if shares_tokens else 7.7e-3


@wrong("layer_seconds", "own work", "tinydist.hardware")
def looked_up(batch, sequence, width, heads, gpus, shares_tokens, compute, memory, wire):
    find_device("A100 80GB")
    return published.LAYERS["22B"].forward


@wrong("layer_seconds", "values", "scores and mix wait for memory")
def arithmetic_alone(batch, sequence, width, heads, gpus, shares_tokens, compute, memory, wire):
    products, others, messages = solved("layer_seconds")(
        batch, sequence, width, heads, gpus, shares_tokens, compute, 1e30, wire
    )
    return products, others * 1e30 / memory, messages


@wrong("layer_seconds", "values", "It is 1,000 times what is right")
def milliseconds(*arguments):
    return tuple(1e3 * seconds for seconds in solved("layer_seconds")(*arguments))
