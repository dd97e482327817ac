"""Other right answers to the exercises of 12_real_systems: they must pass."""

from itertools import product

from lab.registered import others

RIGHT_ANSWERS, right = others()


# batch_and_bucket


@right("batch_and_bucket")
def system_by_system(system, settings, gpus, context, numbers):
    get, most = settings.get, 4 * numbers
    if system == "torchtitan":
        return get("num_tokens_per_train_step"), 0
    if system == "DDP":
        sequences = get("batch_size") * get("accumulated", 1) * gpus
        return sequences * context, min(most, get("bucket_cap_mb", 25) * 1024 * 1024)
    if system == "Accelerate":
        sequences = get("batch_size") * get("gradient_accumulation_steps", 1)
        sequences *= 1 if get("split_batches", False) else gpus
        return sequences * context, min(most, get("bucket_cap_mb", 25) * 1024 * 1024)
    if system == "DeepSpeed":
        sequences = get("train_batch_size") or (
            get("train_micro_batch_size_per_gpu") * get("gradient_accumulation_steps", 1) * gpus
        )
        return sequences * context, min(most, 4 * get("reduce_bucket_size", int(5e8)))
    dp = gpus // get("--tensor-model-parallel-size", 1) // get("--pipeline-model-parallel-size", 1)
    sequences = get("--global-batch-size") or get("--micro-batch-size") * dp
    if "--overlap-grad-reduce" not in settings:
        return sequences * context, most
    return sequences * context, min(most, 4 * get("--ddp-bucket-size", max(int(4e7), int(1e6) * dp)))


# silent_defaults


@right("silent_defaults")
def in_units_of_all_parameters(system, sizes, ranks, held, losses, ours):
    held = held / 4 / sum(sizes)
    apart = max(abs(loss - other) for loss, other in zip(losses, ours))
    unsharded = system == "FSDP plugin" and round(held) in (4, 5)
    buckets = system in ("DDP", "FSDP plugin") and round(held) == 5
    return apart > 1e-3, buckets, unsharded, system[-1] == "3" and held > 5.02 / ranks + 200_000 / sum(sizes)


# choose_flags


@right("choose_flags")
def sorted_by_the_goal(price, gpus, model, room, goal, limit):
    found = []
    for count in reversed(gpus):
        for words in product(
            ["", "--recompute-granularity full"],
            ["--use-distributed-optimizer", ""],
            [f"--micro-batch-size {rows}" for rows in (4, 2, 1)],
            [f"--pipeline-model-parallel-size {pp}" for pp in (8, 4, 2, 1)],
            [f"--tensor-model-parallel-size {tp}" for tp in (8, 4, 2, 1)],
        ):
            flags = " ".join(words)
            tp, pp, rows = int(words[4][-1]), int(words[3][-1]), int(words[2][-1])
            if count % (tp * pp) or model["global batch"] % (count // (tp * pp) * rows):
                continue
            if model["layers"] % pp or model["heads"] % tp:
                continue
            seconds, nbytes = price(count, flags)
            if nbytes <= room and seconds <= limit:
                found.append((seconds, nbytes, count * seconds, count, flags))
    found.sort(key=lambda each: each[["fastest", "smallest", "cheapest"].index(goal)])
    return found[0][3:] if found else None


@right("choose_flags")
def asked_once_for_all(price, gpus, model, room, goal, limit):
    def asked(count, tp, pp, rows, more):
        whole = (
            count / tp / pp,
            model["heads"] / tp,
            model["layers"] / pp,
            model["global batch"] * tp * pp / count / rows,
        )
        if not all(each.is_integer() for each in whole):
            return None
        flags = f"--tensor-model-parallel-size={tp} --pipeline-model-parallel-size={pp} --micro-batch-size={rows}{more}"
        return count, flags, *price(count, flags)

    again = " --recompute-granularity=full"
    more = [a + b for a in ("", " --use-distributed-optimizer") for b in ("", again)]
    answers = filter(None, (asked(*each) for each in product(gpus, (1, 2, 4, 8), (1, 2, 4, 8), (1, 2, 4), more)))
    will_do = [each for each in answers if not each[3] > room and not each[2] > limit]
    if not will_do:
        return None
    costs = {"fastest": lambda each: each[2], "smallest": lambda each: each[3], "cheapest": lambda e: e[0] * e[2]}
    return min(will_do, key=costs[goal])[:2]


@right("choose_flags")
def with_an_optimizer_that_is_always_sharded(price, gpus, model, room, goal, limit):
    """Without a data parallel group it is the plain one, and with one it only takes less room."""
    found = {}
    for count, tp, pp, rows, again in product(gpus, (1, 2, 4, 8), (1, 2, 4, 8), (1, 2, 4), ("", "full")):
        words = f"--tensor-model-parallel-size {tp} --pipeline-model-parallel-size {pp} --micro-batch-size {rows}"
        words += " --use-distributed-optimizer" + " --recompute-granularity full" * bool(again)
        dp, rest = divmod(count, tp * pp)
        if rest or any((model["layers"] % pp, model["heads"] % tp, model["global batch"] % (dp * rows))):
            continue
        seconds, nbytes = price(count, words)
        if nbytes <= room and seconds <= limit:
            found[count, words] = {"fastest": seconds, "smallest": nbytes, "cheapest": count * seconds}[goal]
    return min(found, key=found.get, default=None)
