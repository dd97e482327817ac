"""Wrong answers to the exercises of 07b_sequence_parallel: with the property that rejects each, and what it is told."""

from lab.registered import collection, solved

from tinydist.hardware import collective_time, find_cluster

WRONG_ANSWERS, wrong = collection()


# kept_by_block


@wrong("kept_by_block", "values", "Llama 3 70B on one rank")
def from_the_table_of_2022(tokens, width, heads, kv_heads, inner, gated, parallel, ranks, sequence_parallel):
    whole, parts = (4, 30) if sequence_parallel else (10, 24)
    return (whole + parts / ranks) * tokens * width


@wrong("kept_by_block", "values", "Llama 3 70B on one rank")
def from_the_table_of_the_notebook(tokens, width, heads, kv_heads, inner, gated, parallel, ranks, sequence_parallel):
    inside = 6 + 4 * kv_heads / heads + 8 * inner / width
    units = 4 + (4 + inside) / ranks if sequence_parallel else 8 + inside / ranks
    return units * tokens * width


@wrong("kept_by_block", "values", "the same with sequence parallelism")
def without_sequence_parallelism(*arguments):
    return solved("kept_by_block")(*arguments[:-1], False)


# most_gpus


@wrong("most_gpus", "values", "is right")
def the_closed_form(seconds, whole, tokens, width, heads, per_node, nvlink, network, least):
    most = 1 + seconds / (whole + 16 * tokens * width / nvlink)
    return max(t for t in range(1, heads + 1) if heads % t == 0 and t <= most)


@wrong("most_gpus", "values", "is right")
def never_beyond_a_node(seconds, whole, tokens, width, heads, per_node, *rest):
    return min(per_node, solved("most_gpus")(seconds, whole, tokens, width, heads, per_node, *rest))


@wrong("most_gpus", "values", "48 heads")
def powers_of_two(seconds, whole, tokens, width, heads, per_node, nvlink, network, least):
    """All that divide the heads, if they are a power of two; of 48 only the first five."""
    most = solved("most_gpus")(seconds, whole, tokens, width, heads, per_node, nvlink, network, least)
    return 2 ** (most.bit_length() - 1)


@wrong("most_gpus", "values", "useful by just a half")
def more_than_the_bound(*arguments):
    return solved("most_gpus", ">= least", "> least or t == 1")(*arguments)


@wrong("most_gpus", "own work", "tinydist.hardware")
def asks_the_clock(seconds, whole, tokens, width, heads, per_node, nvlink, network, least):
    collective_time("all_reduce", 2 * tokens * width, 8, 8, find_cluster("H100 node"))
    return 8


# which_way


@wrong("which_way", "values", "few short sequences")
def always_zero(sequences, tokens, width, heads, kv_heads, parameters, ranks):
    return "ZeRO-3", 3 * parameters * (ranks - 1) / ranks


@wrong("which_way", "values", "few short sequences")
def the_way_alone(*arguments):
    return solved("which_way")(*arguments)[0]


@wrong("which_way", "values", "few short sequences")
def all_of_it_is_sent(*arguments):
    way, numbers = solved("which_way")(*arguments)
    return way, numbers * arguments[-1] / (arguments[-1] - 1)


@wrong("which_way", "values", "12 sequences on 8 ranks")
def zero_with_a_sequence_for_every_rank(sequences, tokens, width, heads, kv_heads, parameters, ranks):
    if sequences >= ranks:
        sequences -= sequences % ranks  # and some have one more
    return solved("which_way")(sequences, tokens, width, heads, kv_heads, parameters, ranks)


# mended_copies


@wrong("mended_copies", "values", "the norm is 16771.3")
def the_square_of_the_norm(*arguments):
    return solved("mended_copies")(*arguments) ** 2


@wrong("mended_copies", "runs", "scale has no gradient")
def nothing_at_all(scale, *others):
    return scale.sum()
