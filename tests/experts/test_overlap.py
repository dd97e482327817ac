"""A shared expert, and another microbatch, run while tokens travel; the numbers stay the same."""

import pytest
import torch
import torch.distributed as dist
from experts.moe import on_nodes, own, tokens

import tinydist
from tinydist.experts import EvenRouter, interleaved, losses_of, paired, with_experts
from tinydist.model import GPT, GPTConfig, batch


def model(**options):
    torch.manual_seed(0)
    return with_experts(GPT(GPTConfig(layers=2, heads=2, dim=32)).double(), 8, 2, **options)


def gradients(model):
    return torch.cat([parameter.grad.flatten() for parameter in model.parameters()])


@pytest.mark.parametrize("ranks", [1, 4])
def test_two_microbatches_in_turn_are_one_after_the_other(ranks):
    def program(together):
        gpt, microbatches = model(shared=1), [batch(step, 2, 16) for step in (dist.get_rank(), 9)]
        losses = losses_of(gpt, microbatches) if together else [gpt.loss(*each) for each in microbatches]
        sum(losses).backward()
        return [loss.item() for loss in losses], gradients(gpt)

    both = (tinydist.launch(program, ranks, together, observe=False).results for together in (True, False))
    for (losses, found), (expected, reference) in zip(*both):
        assert losses == pytest.approx(expected, rel=1e-12)
        torch.testing.assert_close(found, reference, rtol=0, atol=1e-12)


@pytest.mark.parametrize("ranks", [1, 4])
@pytest.mark.parametrize("number", [1, 3])
def test_backward_beside_the_next_forward_is_one_after_the_other(ranks, number):
    def program(together):
        gpt, microbatches = model(shared=1, every=2), [batch(dist.get_rank() + 9 * n, 2, 16) for n in range(number)]
        if together:
            return paired(gpt, microbatches), gradients(gpt)
        losses = [gpt.loss(*each) for each in microbatches]
        sum(losses).backward()
        return losses, gradients(gpt)

    both = (tinydist.launch(program, ranks, together, observe=False).results for together in (True, False))
    for (losses, found), (expected, reference) in zip(*both):
        assert torch.stack(losses).tolist() == pytest.approx(torch.stack(expected).tolist(), rel=1e-12)
        torch.testing.assert_close(found, reference, rtol=0, atol=1e-12)


def hidden_part(run):
    """Of the seconds of rank 0's all-to-alls of rows, the part that its compute runs beside: forward, backward."""
    events = run.trace.of(0)
    compute = [(e.start, e.end) for e in events if e.stream == "compute" and e.name != "wait"]
    moved, beside = {}, {}
    for event in events:
        if event.name == "all_to_all" and event.stream != "compute":
            side = "backward" if event.phase == "backward" else "forward"
            moved[side] = moved.get(side, 0) + event.end - event.start
            overlap = sum(max(0, min(event.end, b) - max(event.start, a)) for a, b in compute)
            beside[side] = beside.get(side, 0) + overlap
    return {side: beside[side] / moved[side] for side in moved}


def test_another_microbatch_hides_transfers_in_forward_and_in_backward():
    def program(together):
        gpt, microbatches = model(), [batch(step, 8, 64) for step in (0, 1)]
        losses = losses_of(gpt, microbatches) if together else [gpt.loss(*each) for each in microbatches]
        sum(losses).backward()

    cluster = "PCIe box"
    alone, beside = (hidden_part(tinydist.launch(program, 4, how, cluster=cluster)) for how in (False, True))
    for side in ("forward", "backward"):
        assert alone[side] < 0.2 * beside[side], (side, alone, beside)


def test_paired_transfers_are_hidden_in_a_little_more_memory_than_one_microbatch():
    """Four microbatches that compute longer than the processor takes to launch their kernels."""

    def program(how):
        config = GPTConfig(layers=2, heads=8, dim=1024, context=512)
        gpt = with_experts(GPT(config).bfloat16(), 8, 2, router=EvenRouter)
        microbatches = [(torch.zeros(8, 512, dtype=torch.long),) * 2] * 4
        with tinydist.region("step"):
            how(gpt, microbatches)

    def one_by_one(gpt, microbatches):
        for microbatch in microbatches:
            gpt.loss(*microbatch).backward()

    def two_by_two(gpt, microbatches):
        for number in (0, 2):
            sum(losses_of(gpt, microbatches[number : number + 2])).backward()

    def measured(how):
        run = tinydist.launch(program, 4, how, cluster="PCIe box", fake=True, only=[0])
        return run.between("step").seconds, max(sum(held.values()) for _, held in run.memory[0].over_time())

    (alone, one), (both, two), (pair, little) = map(measured, (one_by_one, two_by_two, paired))
    assert both < pair < 0.9 * alone
    assert little < 1.1 * one and two > 1.3 * one


@pytest.mark.parametrize("nodes", [1, 2])
def test_a_shared_expert_runs_while_the_dispatch_is_under_way(nodes):
    def program():
        moe = on_nodes(nodes)
        moe(own(tokens()))

    events = tinydist.launch(program, 4, cluster="PCIe box").trace.of(0)
    shared = [e.place for e in events if "shared" in e.module and e.stream == "compute"]
    rows = [e for e in events if e.name == "all_to_all" and e.stream != "compute"][1]  # the first has the counts
    experts = [e.place for e in events if e.module.startswith("experts.")]
    assert rows.place < min(shared) and max(shared) < min(experts)


def test_generators_of_different_lengths():
    def counts(to):
        for _ in range(to):
            yield
        return to

    assert interleaved(counts(0), counts(3), counts(1)) == [0, 3, 1]
