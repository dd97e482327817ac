"""Wrong answers to the exercises of 03c_latency_and_nccl: with what rejects each, and what it is told."""

from lab.registered import collection, solved

import tinydist
from tinydist.hardware import bus_bandwidth, costs, nccl

WRONG_ANSWERS, wrong = collection()


# ring_latency


@wrong("ring_latency", "values", "nothing (None)")
def no_time(flight, busy, steps):
    pass


@wrong("ring_latency", "values", "two nodes of eight, each message posted for 3 us")
def the_sum_of_both_models(flight, busy, steps):
    return max(steps * max(busy), solved("ring_latency")(flight, [0.0] * len(busy), steps))


@wrong("ring_latency", "values", "links that all differ")
def each_rank_as_slow_as_the_slowest(flight, busy, steps):
    return solved("ring_latency")(flight, [max(busy)] * len(busy), steps)


# read_benchmark


@wrong("read_benchmark", "values", "nothing (None)")
def reads_nothing(collective, ranks, seconds, wire):
    pass


@wrong("read_benchmark", "own work", "tinydist.hardware")
def by_the_library(collective, ranks, seconds, wire):
    speeds = {size: bus_bandwidth(collective, size, each, ranks) for size, each in seconds.items()}
    best = max(speeds.values())
    return best, min(size for size in speeds if speeds[size] >= best / 2), best > wire


@wrong("read_benchmark", "values", "all-reduces on 8 x A100")
def half_of_the_wire(collective, ranks, seconds, wire):
    best, _, beyond = solved("read_benchmark")(collective, ranks, seconds, wire)
    factor = (1 + (collective == "all_reduce")) * (ranks - 1) / ranks
    return best, min((n for n, s in seconds.items() if factor * n / s >= wire / 2), default=0), beyond


# choose_protocol


@wrong("choose_protocol", "values", "nothing (None)")
def chooses_no_protocol(nbytes, per_node, nodes, protocols):
    pass


@wrong("choose_protocol", "values", "the protocol is 'Simple'")
def always_simple(*given):
    return solved("choose_protocol", "min(seconds.items(), key=lambda item: item[1])", "'Simple', seconds['Simple']")(
        *given
    )


@wrong("choose_protocol", "own work", "tinydist.hardware")
def by_the_model_of_the_library(nbytes, per_node, nodes, protocols):
    return "LL", nccl.a100_pod(nodes).seconds(nbytes, "ring", "LL")


@wrong("choose_protocol", "values", "With 8 bytes on 8 A100: the number of seconds")
def by_latency_alone(nbytes, per_node, nodes, protocols):
    return solved("choose_protocol")(0, per_node, nodes, protocols)


# choose_algorithm


@wrong("choose_algorithm", "values", "nothing (None)")
def chooses_nothing(nbytes, per_node, nodes, inside, between):
    pass


@wrong("choose_algorithm", "values", "the algorithm is 'ring'")
def always_the_ring(*given):
    return solved("choose_algorithm", "min(seconds.items(), key=lambda item: item[1])", "'ring', seconds['ring']")(
        *given
    )


@wrong("choose_algorithm", "own work", "tinydist.hardware")
def formulas_of_the_library(nbytes, per_node, nodes, inside, between):
    return "ring", costs.ring_all_reduce(nbytes, per_node * nodes, inside)


@wrong("choose_algorithm", "own work", "you call tinydist.hardware, which already solves this")
def runs_it_on_the_clock(nbytes, per_node, nodes, inside, between):
    run = tinydist.launch(lambda: None, 2, backend="simulated")
    return "ring", run.seconds


@wrong("choose_algorithm", "values", "1.44 GB on 2 x 8 A100")
def inside_and_then_the_network(*given):
    return solved("choose_algorithm", "max(in_nodes, over_network)", "(in_nodes + over_network)")(*given)
