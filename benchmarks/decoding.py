"""Decoding one sequence on 1 to 8 GPUs: the clock of a server beside gpt-fast's table.

    python benchmarks/decoding.py

gpt-fast compiles the model, replays a CUDA graph, and has a direct all-reduce; neither embedding nor head is sharded.
Nothing here was fitted to these rows. Its A100s have 80 GB and run at 330 W instead of 400; four of them are joined by
NVLink in a hybrid cube mesh, not by switches: both make it slower than what is computed.

Sources: tinydist/hardware/published.py, GPT_FAST.
"""

from tinydist.hardware import find_device, find_link
from tinydist.hardware import published as tables
from tinydist.hardware.published import MEMORY_BANDWIDTHS
from tinydist.planner import find_model
from tinydist.serving import StepCost


def by_model(rates):
    """{model: {GPUs: tokens/s}}"""
    found = {}
    for (model, ranks), rate in rates.items():
        found.setdefault(model, {})[ranks] = rate
    return found


GPT_FAST, WITH_NCCL, EAGER = (by_model(tables.GPT_FAST[name]) for name in ("direct", "NCCL", "eager"))

A100 = find_device("A100 80GB")
MEASURED = A100.at(memory=MEMORY_BANDWIDTHS["A100 80GB"] / A100.memory_bandwidth)
CACHED = 105  # tokens: a prompt of 5, and half of 200


def step_cost(name, ranks, **given):
    options = {"ranks": ranks, "link": find_link("NVLink 3"), "vocab_parallel": False, **given}
    return StepCost(find_model(name), MEASURED, "bfloat16", **options)


def tokens_per_second(name, ranks, **given):
    return 1 / step_cost(name, ranks, **given).seconds([(CACHED, 1)])


def rows(table, **given):
    """(model, GPUs, published, ours)"""
    for name, published in table.items():
        for ranks, measured in published.items():
            yield name, ranks, measured, tokens_per_second(name, ranks, **given)


def report(title, found):
    print(f"\n{title}\n{'':16}GPUs  published   ours   error")
    errors = []
    for name, ranks, measured, ours in found:
        errors.append(ours / measured - 1)
        print(f"{name:16}{ranks:4}{measured:11.1f}{ours:7.1f}{errors[-1]:+8.0%}")
    mean, bias = sum(map(abs, errors)) / len(errors), sum(errors) / len(errors)
    print(f"mean {mean:.0%}, bias {bias:+.0%}, worst {max(errors, key=abs):+.0%}")


def parts():
    print("\nms of a pass: GPUs, memory, starts, all-reduces")
    for name, published in GPT_FAST.items():
        for ranks in published:
            cost = step_cost(name, ranks)
            starts, sent = cost.starting, cost.sending(1)
            memory = cost.seconds([(CACHED, 1)]) - starts - sent
            print(f"{name:16}{ranks:4}" + "".join(f"{1e3 * each:8.2f}" for each in (memory, starts, sent)))


def main():
    report("CUDA graph, direct all-reduce (tokens/s)", rows(GPT_FAST))
    parts()
    report("control: all-reduces by NCCL", rows(WITH_NCCL, algorithm=None))
    report("eager", rows(EAGER, execution="eager"))
    for execution in ("eager", "compiled", "CUDA graph"):
        ours = [f"{tokens_per_second('Llama 2 7B', ranks, execution=execution):.0f}" for ranks in (1, 2, 4, 8)]
        print(f"Llama 2 7B, {execution:11} on 1, 2, 4, 8 GPUs: {', '.join(ours)} tokens/s")


if __name__ == "__main__":
    main()
