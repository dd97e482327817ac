"""Wrong answers to the exercises of 10b_flash_kernels: each with the property that rejects it, and what it is told."""

from lab.registered import collection, solved

WRONG_ANSWERS, wrong = collection()


# flash_kernel


def edited(label, rejected_by, told, *edits):
    WRONG_ANSWERS.append((f"flash_kernel-{label}", solved("flash_kernel", *edits), rejected_by, told))


HIGHER, SEEN = "tl.maximum(maximum, tl.max(scores, 1))", "rows[:, None] + S - T"
ROUND, END = "        at, inside =", "(tl.program_id(0) + 1) * M + S - T"
QUERIES = "        tl.load(q + rows[:, None] * D + width, mask=(rows < T)[:, None], other=0.0)\n"
STORE = "output / total[:, None], mask=(rows < T)[:, None]"
edited("stores_beyond_the_end", "runs", "stores beyond the last query", STORE, "output / total[:, None]")
edited("the_maximum_of_each_tile_alone", "values", "scores of some hundreds", HIGHER, "tl.max(scores, 1)")
edited("sees_the_next_key", "values", "the diagonal goes through", SEEN, SEEN + " + 1")
edited("loads_the_queries_in_each_round", "loads", "rows 0 to 15 of q", ROUND, QUERIES + ROUND)
edited("stops_a_tile_late", "loads", "which it does not need", END, END + " + N")


# choose_tile


@wrong("choose_tile", "tile", "it returned nothing (None)")
def chooses_nothing(gpu, head_dim, tokens):
    pass


@wrong("choose_tile", "tile", "keys is 128")
def always_128_by_128(gpu, head_dim, tokens):
    return {**solved("choose_tile")(gpu, head_dim, tokens), "queries": 128, "keys": 128}


@wrong("choose_tile", "bytes", "bytes is 1179648")
def output_too(gpu, head_dim, tokens):
    return solved("choose_tile", "(tokens + programs", "(2 * tokens + programs")(gpu, head_dim, tokens)


@wrong("choose_tile", "waits", "With many registers")
def one_product(gpu, head_dim, tokens):
    return solved("choose_tile", "flops = 4", "flops = 2")(gpu, head_dim, tokens)


@wrong("choose_tile", "waits", "waits")
def never_waits(gpu, head_dim, tokens):
    return {**solved("choose_tile")(gpu, head_dim, tokens), "waits": False}
