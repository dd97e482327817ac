"""Wrong answers to the exercises of 10b_flash_kernels: each with the property that rejects it, and what it is told."""

import torch.nn.functional as F
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


@wrong("choose_tile", "tile", "the one with the most keys is asked for, not the most queries")
def most_queries_of_equals(gpu, head_dim, tokens):
    best = '(tile["bytes"], -tile["queries"] * 2000 - tile["keys"])'
    return solved("choose_tile", '(tile["bytes"], -tile["keys"])', best)(gpu, head_dim, tokens)


@wrong("choose_tile", "tile", "keys is 128")
def always_128_by_128(gpu, head_dim, tokens):
    return {**solved("choose_tile")(gpu, head_dim, tokens), "queries": 128, "keys": 128}


@wrong("choose_tile", "bytes", "What is stored is not loaded")
def output_too(gpu, head_dim, tokens):
    return solved("choose_tile", "(tokens + programs", "(2 * tokens + programs")(gpu, head_dim, tokens)


@wrong("choose_tile", "waits", "With many registers")
def one_product(gpu, head_dim, tokens):
    return solved("choose_tile", "flops = 4", "flops = 2")(gpu, head_dim, tokens)


@wrong("choose_tile", "waits", "waits")
def never_waits(gpu, head_dim, tokens):
    return {**solved("choose_tile")(gpu, head_dim, tokens), "waits": False}


# time_of_versions


def another(label, rejected_by, told, *edits):
    WRONG_ANSWERS.append((f"time_of_versions-{label}", solved("time_of_versions", *edits), rejected_by, told))


@wrong("time_of_versions", "blocks", "it returned nothing (None)")
def predicts_nothing(version, gpu, heads, tokens, head_dim):
    pass


another("tiles_rounded_down", "blocks", "1,000 tokens", "math.ceil(tokens / 128)", "tokens // 128")
another("whole_rate_for_a_block", "seconds", "FlashAttention-1 on an H100", "/ (gpu.matmul / gpu.sms)", "/ gpu.matmul")
another("overlaps_in_version_4_alone", "seconds", "FlashAttention-3 on an H100", "version >= 3", "version == 4")
another(
    "always_waits_for_matmuls", "waits", "2.25 times the matmuls", '"exp" if exp > matmul else "matmul"', '"matmul"'
)


# first_backend


def backend(label, rejected_by, told, *edits):
    WRONG_ANSWERS.append((f"first_backend-{label}", solved("first_backend", *edits), rejected_by, told))


@wrong("first_backend", "runs", "it returned nothing (None)")
def asks_nobody(wanted, q, k, v, options):
    pass


@wrong("first_backend", "kernel", "silent fallback")
def restricts_nothing(wanted, q, k, v, options):
    return F.scaled_dot_product_attention(q, k, v, **options), wanted[0].name


@wrong("first_backend", "kernel", "chooses in its own order")
def by_pytorchs_own_choice(wanted, q, k, v, options):
    if options or v.shape[-1] != k.shape[-1]:
        return solved("first_backend")(wanted, q, k, v, options)
    return F.scaled_dot_product_attention(q, k, v), wanted[0].name


GOES_ON = "                return F", "                found = F", "    return None, None", "    return found"
backend("goes_on_after_one_has_run", "kernel", "FLASH_ATTENTION, MATH", *GOES_ON)
backend("backend_and_not_its_name", "name", "of type SDPBackend", "backend.name", "backend")
