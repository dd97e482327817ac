"""The references of the exercises on serving beside the library."""

from dataclasses import replace

import pytest
import torch

from tinydist.hardware import DEVICES, find_link
from tinydist.planner import find_model
from tinydist.serving import (
    BlockPool,
    BlockTable,
    ContinuousBatching,
    OutOfBlocks,
    Request,
    Scheduler,
    StepCost,
    paged_attention,
)
from tinydist.syllabus.registry import find


def each_case(name, wanted=lambda case: True):
    return pytest.mark.parametrize("case", [case for case in find(name).cases if wanted(case)], ids=str)


def given(case):
    return case.arguments(0)


@each_case(
    "share_blocks", lambda case: case.arguments(0)[0] and "drop" not in [each[0] for each in case.arguments(0)[2]]
)
def test_as_many_blocks_are_shared_copied_and_refused_as_in_the_librarys_tables(case):
    blocks, size, events = given(case)
    pool, tables, copies, refused = BlockPool(blocks, size), {}, [], []
    for number, (what, name, *more) in enumerate(events):
        if what == "fork":
            tables[more[0]] = tables[name].fork()
        elif what == "end":
            tables.pop(name).clear()
        else:
            try:
                copies += tables.setdefault(name, BlockTable(pool)).allocate_slots(more[0])
            except OutOfBlocks:
                refused.append(number)
    its, references, its_copies, its_refused = find("share_blocks").reference(blocks, size, events)
    assert {name: len(table) for name, table in its.items()} == {
        name: len(table.blocks) for name, table in tables.items() if table.length
    }
    assert sorted(references) == sorted(pool.references)
    assert (len(its_copies), its_refused) == (len(copies), refused)


@each_case("decode_by_table")
def test_decoding_is_the_librarys_paged_attention(case):
    q, k, v, keys, values, tables, lengths, window = given(case)
    out = find("decode_by_table").reference(q, k, v, keys, values, tables, lengths, window)
    own = [[block if block is not None else table[-1] for block in table] for table in tables]
    its = paged_attention(q[:, None, None], keys[:, None], values[:, None], own, lengths, window=window)
    torch.testing.assert_close(out, its[:, 0, 0])


@each_case("next_pass", lambda case: case.arguments(0)[0])
def test_passes_are_those_of_the_librarys_continuous_batching(case):
    exercise = find("next_pass")
    blocks, size, asks = given(case)
    policy = ContinuousBatching(100, 10_000, chunked_prefill=False)
    scheduler = Scheduler(policy, BlockPool(blocks, size, prefix_cache=False))
    names, never, ran = {}, [], []
    for number in range(100):
        for _, (name, tokens, longest, _) in (ask for ask in asks if ask[0] == number):
            try:
                names[scheduler.add(Request([1] * tokens, longest - tokens + 1))] = name
            except ValueError:
                never.append(name)
        if scheduler.idle and number > max(when for when, _ in asks):
            break
        step = scheduler.schedule()
        ran.append(sorted(names[sequence.state] for sequence, _ in step.scheduled))
        scheduler.update(step, lambda ready: [1] * len(ready))
    its = exercise.right(case).returned[0]
    assert [sorted(go_on + begin) for _, go_on, begin, _ in its] == ran
    assert sorted(name for *_, refused in its for name in refused) == sorted(never)


@each_case("plan_batch", lambda case: str(case).startswith(("OPT", "Llama")) and "8 bits" not in str(case))
def test_a_batch_in_time_is_so_by_the_librarys_clock(case):
    """On a device whose arithmetic and kernels' starts take no time, and which reads the embedding too; one more takes
    too long."""
    model, gpu, _, shared, own, goal = given(case)
    its = find_model(model.name)
    assert (its.parameters, its.layers, its.kv_heads, its.head_dim) == model[1:5]
    device = replace(DEVICES["H100"], peak={"float16": 1e30}, memory_bandwidth=gpu.bandwidth, runs_ahead=False)
    cost, found = StepCost(its, device), find("plan_batch").reference(*given(case))
    tokens, batch, embedding = shared + own, found["in time"], (cost.weights - cost.weights_read) / gpu.bandwidth
    now, more = (embedding + cost.seconds([(tokens - 1, 1)] * many) for many in (batch, batch + 1))
    assert now <= goal < more


@each_case("find_prefixes")
def test_as_many_tokens_are_found_as_in_the_librarys_tables(case):
    blocks, size, events = given(case)
    pool, tables, found = BlockPool(blocks, size), {}, []
    for what, name, *more in events:
        if what == "end":
            tables.pop(name).clear()
            continue
        (prompt,) = more
        table = tables[name] = BlockTable(pool)
        found.append(table.match_prefix(prompt[:-1]))
        table.allocate_slots(len(prompt) - found[-1])
        table.cache_full_blocks(prompt, len(prompt))
    its, its_tables = find("find_prefixes").reference(blocks, size, events)
    assert its == found
    assert its_tables == {name: table.blocks for name, table in tables.items()}


@each_case("fastest_decode", lambda case: str(case).startswith("Llama") and " 1 x " in str(case))
def test_a_token_takes_about_as_long_as_by_the_librarys_clock(case):
    """Which reads no embedding, has the latency of its own kernels, and adds memory and arithmetic otherwise."""
    model, gpu, batch, context, *_ = given(case)
    device = DEVICES["H100" if gpu.bandwidth > 2e12 else "A100 80GB"]
    device = device.at(memory=gpu.bandwidth / device.memory_bandwidth)
    its = find("fastest_decode").reference(*given(case))
    fewest = next(t for t in (1, 2, 4, 8) if 2 * model.parameters / t < gpu.memory - 1e9)
    link = find_link("NVLink 3") if fewest > 1 else None
    cost = StepCost(find_model(model.name), device, "bfloat16", fewest, link)
    assert its["alone"] == pytest.approx(cost.seconds([(context, 1)] * batch), rel=0.15)
