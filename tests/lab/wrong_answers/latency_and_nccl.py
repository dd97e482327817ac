"""Wrong answers to the exercises of 03c_latency_and_nccl: with what rejects each, and what it is told."""

from lab.registered import collection, solved

from tinydist.hardware import bus_bandwidth, nccl

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


@wrong("choose_protocol", "values", "By LL: the bytes are missing")
def by_latency_alone(nbytes, per_node, nodes, protocols):
    return solved("choose_protocol")(0, per_node, nodes, protocols)


# choose_algorithm


@wrong("choose_algorithm", "values", "half as much out of each node, and still 2 n through each NVLink")
def half_inside_too(nbytes, per_node, nodes, nvlink, cards, ways):
    halved = "sent = leaves = nbytes if nodes == 2 else 2 * nbytes"
    return solved("choose_algorithm", "sent = leaves = 2 * nbytes", halved)(
        nbytes, per_node, nodes, nvlink, cards, ways
    )


@wrong("choose_algorithm", "values", "the algorithm is 'ring'")
def always_the_ring(nbytes, per_node, nodes, nvlink, cards, ways):
    rings = {way: numbers for way, numbers in ways.items() if way[0] == "ring"}
    return solved("choose_algorithm")(nbytes, per_node, nodes, nvlink, cards, rings)


@wrong("choose_algorithm", "own work", "tinydist.hardware")
def formulas_of_the_library(nbytes, per_node, nodes, nvlink, cards, ways):
    found = nccl.Communicator(per_node * nodes, nodes, 8, cards / 8).choice(nbytes)
    return found.algorithm, found.protocol, found.seconds


@wrong("choose_algorithm", "values", "Over two nodes one of them sends its sum up")
def two_nodes_like_all_others(nbytes, per_node, nodes, nvlink, cards, ways):
    return solved("choose_algorithm", "if nodes == 2:", "if False:")(nbytes, per_node, nodes, nvlink, cards, ways)


@wrong("choose_algorithm", "values", "the wires between are missing")
def by_latency_and_the_wire_inside(nbytes, per_node, nodes, nvlink, cards, ways):
    return solved("choose_algorithm")(nbytes, per_node, nodes, nvlink, 1e15, ways)
