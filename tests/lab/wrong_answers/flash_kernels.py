"""Wrong answers to the exercises of 10b_flash_kernels: each with the property that rejects it, and what it is told."""

from lab.registered import collection, solved

WRONG_ANSWERS, wrong = collection()


# flash_kernel


def edited(label, rejected_by, told, *edits):
    WRONG_ANSWERS.append((f"flash_kernel-{label}", solved("flash_kernel", *edits), rejected_by, told))


ROUND, END, KEPT = "        at, inside =", "(tl.program_id(0) + 1) * M + S - T", "        maximum = higher\n"
STORE = "    tl.store(out + rows[:, None] * D + width, output / total[:, None], mask=(rows < T)[:, None])"
AGAIN = STORE.replace("    tl", "        tl", 1) + "\n"
READ = "        output = tl.load(out + rows[:, None] * D + width, mask=(rows < T)[:, None]) * total[:, None]\n"
FIRST = "        output = tl.where(start == 0, 0.0, output)\n"
edited(
    "the_maximum_of_each_tile_alone",
    "values",
    "exp gives inf",
    "tl.maximum(maximum, tl.max(scores, 1))",
    "tl.max(scores, 1)",
)
edited(
    "hides_with_minus_100",
    "values",
    "scores near -300, with a short last tile",
    'float("-inf"))\n        higher',
    "-100.0)\n        higher",
)
edited("stops_a_key_early", "values", "program 0 does not load row 32 of k", END, END + " - 1")
edited("keeps_the_output_in_slow_memory", "loads", "loads its output", ROUND, READ + FIRST + ROUND, KEPT, KEPT + AGAIN)
edited("stores_in_each_round", "loads", "store a tile of it once", KEPT, KEPT + AGAIN)


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
