"""Wrong answers to the exercises of 15b_profile_and_forecast: the property that rejects each, and what it is told."""

import torch
import torch.distributed as dist
from lab.registered import collection, solved

WRONG_ANSWERS, wrong = collection()

# peak_by_owner


@wrong("peak_by_owner", "values", "was there before it began")
def as_the_notebook_does(events):
    """It starts at zero, and forgets what is older."""
    held, peak, alive, at_peak = 0, 0, {}, {}
    for event in events:
        if event["action"] == "alloc":
            held += event["size"]
            alive[event["addr"]] = event
        elif event["action"] == "free_completed":
            held -= event["size"]
            alive.pop(event["addr"], None)
        if held > peak:
            peak, at_peak = held, dict(alive)
    owners = {}
    for event in at_peak.values():
        files = [frame["filename"] for frame in event["frames"] if not frame["filename"].startswith("torch/")]
        name = files[0] if files else "torch"
        owners[name] = owners.get(name, 0) + event["size"]
    return peak, owners


@wrong("peak_by_owner", "values", "two owners of as many bytes")
def the_last_of_that_size_is_freed(events):
    of_size = "next(each for each in reversed(alive) if alive[each][1] == size)"
    return solved("peak_by_owner", "alive.pop(addr, None)", f"alive.pop({of_size})")(events)


@wrong("peak_by_owner", "values", "files whose names have torch in them")
def torch_anywhere_in_a_name(events):
    return solved("peak_by_owner", 'not file.startswith("torch/")', '"torch" not in file')(events)


@wrong("peak_by_owner", "values", "the owners")
def an_address_that_was_freed_is_always_older(events):
    peak, owners = solved("peak_by_owner")(events)
    freed = {event["addr"]: event["size"] for event in events if event["action"] == "free_completed"}
    return peak, owners | ({"older": sum(freed.values())} if freed else {})


@wrong("peak_by_owner", "runs", "the bytes and a dict of owners")
def only_the_bytes(events):
    return solved("peak_by_owner")(events)[0]


# waited_for


@wrong("waited_for", "values", "together longer than a single one")
def the_longest_wait_of_each_call(calls):
    once = 'ranks[last["rank"]] = max(ranks.get(last["rank"], 0), rank_waits)'
    return solved("waited_for", 'ranks[last["rank"]] = ranks.get(last["rank"], 0) + rank_waits', once)(calls)


@wrong("waited_for", "values", "rank None, NVLink")
def the_last_rank_of_the_longest_call(calls):
    found = []
    for step in sorted({each["step"] for each in calls}):
        here = [each for each in calls if each["step"] == step]
        longest = max(here, key=lambda each: each["end"] - each["issued"])
        last = max((each for each in here if each["number"] == longest["number"]), key=lambda each: each["issued"])
        found.append((last["rank"], longest["link"]))
    return found


@wrong("waited_for", "values", "rank None, NVLink")
def negative_waits_count(calls):
    return solved("waited_for", "if rank_waits > 0", "if True", "if link_waits > 0", "if True")(calls)


@wrong("waited_for", "runs", "a list of pairs")
def as_a_dict(calls):
    return dict(enumerate(solved("waited_for")(calls)))


@wrong("waited_for", "values", "begin anew")
def calls_by_their_number_alone(calls):
    each_step = 'each["number"] == number and each["step"] == step'
    return solved("waited_for", each_step, 'each["number"] == number')(calls)


# faster_step


@wrong("faster_step", "values", "None")
def does_nothing(weights, batches):
    pass


@wrong("faster_step", "values", "nobody sent anything")
def sends_nothing(*arguments):
    return solved("faster_step", "if last:", "if False:")(*arguments)


@wrong("faster_step", "bytes", "bytes")
def twice(*arguments):
    solved("faster_step")(*arguments)
    return solved("faster_step")(*arguments)


@wrong("faster_step", "time", "before backward ends")
def in_one_message(weights, batches):
    """The fastest that I know without overlap: one message, and no gradient of the input."""
    ranks, loss = dist.get_world_size(), torch.zeros(1)
    gradients = [torch.zeros_like(weight) for weight in weights]
    for batch in batches:
        inputs = [batch]
        for weight in weights:
            inputs.append(torch.relu(inputs[-1] @ weight))
        loss += inputs[-1].square().mean() / len(batches)
        error = inputs[-1] * (2 / inputs[-1].numel() / len(batches))
        for layer in reversed(range(len(weights))):
            error = error * (inputs[layer + 1] > 0)
            gradients[layer] += inputs[layer].T @ error
            if layer:
                error = error @ weights[layer].T
    flat = torch.cat([loss, *(gradient.view(-1) for gradient in gradients)]) / ranks
    dist.all_reduce(flat)
    loss, *means = flat.split([1, *(weight.numel() for weight in weights)])
    return loss[0], [mean.view_as(weight) for mean, weight in zip(means, weights)]


@wrong("faster_step", "values", "the loss")
def the_last_loss(*arguments):
    return solved("faster_step", "        loss += inputs", "        loss = inputs")(*arguments)
