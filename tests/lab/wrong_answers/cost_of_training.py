"""Wrong answers to the exercises of 03d_cost_of_training: with the property that rejects each, and what it is told."""

from lab.registered import collection, solved

from tinydist.hardware import published

WRONG_ANSWERS, wrong = collection()


# what_to_keep


@wrong("what_to_keep", "values", "where 'all' is right")
def always_cheap(*arguments):
    return "cheap", 1e9


@wrong("what_to_keep", "values", "where 'all' is right")
def never_fits(*arguments):
    return "nothing", 0


@wrong("what_to_keep", "values", "one result in 'cheap'")
def nothing_is_there_again(layers, batch, sequence, width, gpus, parameters, room):
    one = sequence * batch * width
    kept = {"all": one * (8 + 24 / gpus), "cheap": one * (4 + 16 / gpus), "inputs only": 2 * one}
    for way, each in kept.items():
        peak = 16 * parameters / gpus + layers * each
        if peak <= room:
            return way, peak
    return "nothing", 0


@wrong("what_to_keep", "values", "the number of bytes")
def a_way_without_its_bytes(*arguments):
    return solved("what_to_keep")(*arguments)[0], 1


@wrong("what_to_keep", "values", "returned an object of type str")
def the_way_alone(*arguments):
    return solved("what_to_keep")(*arguments)[0]


# flops_per_token


@wrong("flops_per_token", "own work", "tinydist.hardware")
def looked_up(*arguments):
    flops = published.TrainingRun("mine", published.A100_80GB, 1e9, 1, source="none").flops
    return flops, flops


@wrong("flops_per_token", "values", "the model's FLOPs")
def the_rule_of_six(layers, width, intermediate, heads, kv_heads, vocabulary, sequence, experts, chosen, recomputes):
    parameters = layers * (2 * width**2 * (1 + kv_heads / heads) + chosen * 3 * width * intermediate)
    return 6 * parameters, (8 if recomputes else 6) * parameters


@wrong("flops_per_token", "values", "one of the two is missing")
def keys_without_values(
    layers, width, intermediate, heads, kv_heads, vocabulary, sequence, experts, chosen, recomputes
):
    mlp = chosen * 3 * width * intermediate + experts * width if experts > 1 else 3 * width * intermediate
    of_layers = layers * (2 * (2 * width**2 + width**2 // heads * kv_heads + mlp) + 2 * sequence * width)
    model = 3 * (of_layers + 2 * width * vocabulary)
    return model, model + of_layers * recomputes


@wrong("flops_per_token", "values", "the hardware's FLOPs")
def nothing_is_run_again(*arguments):
    model, _ = solved("flops_per_token")(*arguments)
    return model, model


# most_devices


@wrong("most_devices", "values", "is right")
def critical_of_two_devices(batch, width, rate, latency, bandwidth, limit):
    critical = 2 * (latency + 2 * width**2 / bandwidth) * rate / (4 * width**2)
    return max(1, min(limit, int(batch / critical)))


@wrong("most_devices", "values", "The result is 256, where 318 is right")
def powers_of_two(*arguments):
    return 2 ** (solved("most_devices")(*arguments).bit_length() - 1)


@wrong("most_devices", "values", "It is one less than is right")
def one_less(*arguments):
    return solved("most_devices")(*arguments) - 1


@wrong("most_devices", "values", "is right")
def as_many_as_there_are(batch, width, rate, latency, bandwidth, limit):
    return limit
