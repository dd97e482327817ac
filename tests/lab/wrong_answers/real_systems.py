"""Wrong answers to the exercises of 12_real_systems: the property that rejects each, and what it is told."""

from contextlib import suppress
from math import inf

from lab.registered import collection, solved

from tinydist.planner import find_model

WRONG_ANSWERS, wrong = collection()


# batch_and_bucket


@wrong("batch_and_bucket", "values", "Tokens are asked for")
def in_sequences(system, settings, gpus, context, numbers):
    return solved("batch_and_bucket")(system, settings, gpus, 1, numbers)


@wrong("batch_and_bucket", "values", "by default, too, a bucket is never larger than all gradients")
def one_default_for_all(system, settings, *others):
    tokens, bucket = solved("batch_and_bucket")(system, settings, *others)
    named = any("bucket" in name for name in settings)
    return tokens, bucket if named or system == "torchtitan" else 25 * 2**20


@wrong("batch_and_bucket", "values", "The tokens of a step is 1572864, where 786432 is right")
def a_global_batch_is_accumulated_too(*arguments):
    edits = ('settings.get("train_batch_size", sequences)', 'settings.get("train_batch_size", 0) * steps or sequences')
    return solved("batch_and_bucket", *edits)(*arguments)


# silent_defaults


EACH = "any(abs(loss - other) > 1e-4 for loss, other in zip(losses, ours))"


@wrong("silent_defaults", "values", "lipping is False, where True is right")
def by_one_loss_in_the_middle(*arguments):
    return solved("silent_defaults", EACH, "abs(losses[10] - ours[10]) > 1e-4")(*arguments)


@wrong("silent_defaults", "values", "Only bytes above that sum tell")
def whole_by_the_sizes_alone(*arguments):
    edits = (
        'whole = more and system == "DeepSpeed ZeRO 3"',
        'whole = system == "DeepSpeed ZeRO 3" and min(sizes) <= 100_000',
    )
    return solved("silent_defaults", *edits)(*arguments)


@wrong("silent_defaults", "values", "These losses are of another training")
def by_the_mean_loss(*arguments):
    return solved("silent_defaults", EACH, "abs(sum(losses) - sum(ours)) > 1e-4")(*arguments)


@wrong("silent_defaults", "values", "lipping is False, where True is right")
def by_a_loss_that_one_would_see(*arguments):
    return solved("silent_defaults", "> 1e-4", "> 1e-2")(*arguments)


@wrong("silent_defaults", "values", "unsharded is False, where True is right")
def the_plugin_shards(system, *others):
    clipping, buckets, _, whole = solved("silent_defaults")(system, *others)
    return clipping, buckets, False, whole


# choose_flags


@wrong("choose_flags", "flags", "--zero 1")
def flags_of_another_system(price, gpus, *others):
    return gpus[0], "--micro-batch-size 1 --zero 1"


@wrong("choose_flags", "goal", "--pipeline-model-parallel-size 8 is never tried")
def four_stages_at_most(*arguments):
    return solved("choose_flags", "(1, 2, 4, 8), (1, 2, 4),", "(1, 2, 4), (1, 2, 4),")(*arguments)


@wrong("choose_flags", "runs", "heads (25)")
def all_must_go_together(price, gpus, *others):
    return min((price(count, f"--tensor-model-parallel-size {tp}"), count) for count in gpus for tp in (1, 2, 4, 8))


@wrong("choose_flags", "goal", "must be divisible by dp (32) x microbatch (4)")
def forgets_the_batch(*arguments):
    edits = (' or model["global batch"] % (dp * rows)', "", "price(count, flags)", "asked(price, count, flags)")
    return solved("choose_flags", *edits, asked=or_too_dear)(*arguments)


def or_too_dear(price, *job):
    with suppress(ValueError):
        return price(*job)
    return inf, inf


@wrong("choose_flags", "own work", "tinydist.planner")
def asks_the_planner(*arguments):
    find_model("Llama 3 8B").flops(1)
    return solved("choose_flags")(*arguments)
