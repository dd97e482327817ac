"""Wrong answers to the exercises of 10b_flash_kernels: each with the property that rejects it, and what it is told."""

from lab.registered import collection, solved

WRONG_ANSWERS, wrong = collection()


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
