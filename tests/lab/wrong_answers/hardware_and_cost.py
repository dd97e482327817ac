"""Wrong answers to the exercises of 03_hardware_and_cost: with the property that rejects each, and what it is told."""

from dataclasses import replace

from lab.registered import collection, solved

from tinydist.hardware import DEVICES, costs, find_device, published

WRONG_ANSWERS, wrong = collection()


# rows_needed


@wrong("rows_needed", "own work", "tinydist.hardware")
def by_the_library(k, n, peak, bandwidth, size):
    device = replace(DEVICES["A100 80GB"], peak={"bfloat16": peak}, memory_bandwidth=bandwidth)
    for m in range(1, 400):
        flops = 2 * m * k * n
        if costs.kernel_time(device, flops, size * (m * k + k * n + m * n), "bfloat16") <= flops / peak:
            return m
    return 0


# layer_seconds


@wrong("layer_seconds", "values", "0.00717719")
def what_was_published(batch, sequence, width, heads, gpus, shares_tokens, compute, memory, wire):
    return 7.2e-3 if shares_tokens else 7.7e-3


@wrong("layer_seconds", "own work", "tinydist.hardware")
def looked_up(batch, sequence, width, heads, gpus, shares_tokens, compute, memory, wire):
    find_device("A100 80GB")
    return published.LAYERS["22B"].forward


@wrong("layer_seconds", "values", "0.00717719")
def arithmetic_alone(batch, sequence, width, heads, gpus, shares_tokens, compute, memory, wire):
    tokens = batch * sequence
    return 24 * tokens * width**2 / gpus / compute


@wrong("layer_seconds", "values", "It is 1,000 times too large")
def milliseconds(*arguments):
    return 1e3 * solved("layer_seconds")(*arguments)


# what_to_keep


@wrong("what_to_keep", "values", "where 'no maps' is right")
def always_all(*arguments):
    return "all", 1e9


@wrong("what_to_keep", "values", "the way is 'inputs only'")
def a_way_without_its_bytes(*arguments):
    """Nothing says which mistake led to it: three ways are too few for that."""
    return "inputs only", 1


@wrong("what_to_keep", "values", "returned an object of type str")
def the_way_alone(*arguments):
    return solved("what_to_keep")(*arguments)[0]
