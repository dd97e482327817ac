"""Other right answers to the exercises of 15b_profile_and_forecast: they must pass."""

import torch
import torch.distributed as dist
from lab.registered import others

RIGHT_ANSWERS, right = others()


@right("peak_by_owner")
def from_the_end(events):
    """Backwards: what is freed was alive, and what is alive at the beginning is older."""
    changes = [event for event in events if event["action"] in ("alloc", "free_completed")]
    alive, owners = {}, {}
    for event in reversed(changes):
        if event["action"] == "alloc":
            alive.pop(event["addr"], None)
        else:
            alive[event["addr"]] = event["size"]
    own = {addr: {"older": size} for addr, size in alive.items()}
    peak, owners = sum(alive.values()), {"older": sum(alive.values())} if alive else {}
    for event in changes:
        if event["action"] == "alloc":
            named = (frame["filename"] for frame in event["frames"])
            own[event["addr"]] = {next((each for each in named if each[:6] != "torch/"), "torch"): event["size"]}
        else:
            del own[event["addr"]]
        held = sum(sum(each.values()) for each in own.values())
        if held > peak:
            peak, owners = held, {}
            for each in own.values():
                for name, size in each.items():
                    owners[name] = owners.get(name, 0) + size
    return peak, owners


@right("waited_for")
def in_one_pass(calls):
    begins = {}
    for each in calls:
        key = each["step"], each["number"]
        begins[key] = max(begins.get(key, (-1, 0)), (each["issued"], each["rank"]))
    waits = {each["step"]: ({}, {}) for each in calls}
    for each in calls:
        begin, last = begins[each["step"], each["number"]]
        ranks, links = waits[each["step"]]
        cut = min(max(begin, each["waits_from"]), each["end"])
        ranks[last] = ranks.get(last, 0) + max(0, begin - each["waits_from"])
        links[each["link"]] = links.get(each["link"], 0) + each["end"] - cut

    def longest(seconds):
        most = max(seconds, key=seconds.get)
        return most if seconds[most] > 0 else None

    return [(longest(ranks), longest(links)) for _, (ranks, links) in sorted(waits.items())]


@right("faster_step")
def by_autograd(weights, batches):
    """Backward in one go, by torch; a hook on each weight reduces its gradient in the last micro-batch."""
    ranks, works = dist.get_world_size(), []
    own = [weight.clone().requires_grad_() for weight in weights]
    loss = torch.zeros(())
    for number, x in enumerate(batches):
        if number == len(batches) - 1:
            for weight in own:
                weight.register_post_accumulate_grad_hook(
                    lambda each: works.append(dist.all_reduce(each.grad, async_op=True))
                )
        for weight in own:
            x = torch.relu(x @ weight)
        part = x.square().mean() / len(batches)
        loss += part.detach()
        if number == len(batches) - 1:
            works.append(dist.all_reduce(loss, async_op=True))
        part.backward()
    for work in works:
        work.wait()
    return loss / ranks, [weight.grad / ranks for weight in own]


def in_buckets(size, weights, batches):
    """As DDP does: gradients in buckets, each divided by the ranks and sent when its last gradient is there; the loss
    travels in the first."""
    ranks, works = dist.get_world_size(), []
    gradients, loss = [torch.zeros_like(weight) for weight in weights], torch.zeros(1)
    for number, x in enumerate(batches):
        last, inputs, bucket = number == len(batches) - 1, [x], []
        for weight in weights:
            inputs.append(torch.relu(inputs[-1] @ weight))
        loss += inputs[-1].square().mean() / len(batches)
        error = 2 * inputs[-1] / inputs[-1].numel() / len(batches)
        for layer in reversed(range(len(weights))):
            error = error * (inputs[layer + 1] > 0)
            gradients[layer] += inputs[layer].T @ error
            bucket.append(gradients[layer].view(-1))
            if last and (len(bucket) == size or layer == 0):
                parts = bucket if works else [*bucket, loss]
                flat = torch.cat(parts) / ranks
                works.append((dist.all_reduce(flat, async_op=True), flat, parts))
                bucket = []
            error = error @ weights[layer].T
    for work, flat, parts in works:
        work.wait()
        for part, mean in zip(parts, flat.split([part.numel() for part in parts])):
            part.copy_(mean)
    return loss[0], gradients


@right("faster_step")
def in_buckets_of_two_layers(weights, batches):
    return in_buckets(2, weights, batches)


@right("faster_step")
def in_buckets_of_four_layers(weights, batches):
    """Two messages of six layers: the first overlaps with the rest of backward."""
    return in_buckets(4, weights, batches)
