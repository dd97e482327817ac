"""A parameter of the first and the last stage: the gradients of one process, for S bytes each way."""

import pytest
import torch
import torch.distributed as dist
import torch.nn.functional as F
from tiny_training import assert_every_rank_has
from unobserved import launch

import tinydist
from tinydist.model import GPT, GPTConfig, batch
from tinydist.pipeline_parallel import Worker, cut, evenly, layers_of, make_schedule, sum_tied_gradients
from tinydist.pipeline_parallel.tied_weights import untied

CONFIG = GPTConfig(layers=4, dim=16, heads=2, context=8, vocab_size=256)


def model():
    torch.manual_seed(0)
    return GPT(CONFIG)


def loss(logits, targets):
    return F.cross_entropy(logits.flatten(0, 1), targets.flatten())


def data():
    return [tensor[:, : CONFIG.context].contiguous() for tensor in batch(0, 8)]


def train(schedule, recompute=False):
    """Gradients by name, of the parameters that this rank has, after a step."""
    gpt = model()
    stages = cut(layers_of(gpt), evenly(layers_of(gpt), schedule.stages))
    mine = {stage: stages[stage] for stage in schedule.stages_of(dist.get_rank())}
    between = torch.empty(8 // schedule.microbatches, CONFIG.context, CONFIG.dim, device="meta")
    value = Worker(schedule, mine, between, loss, recompute=recompute).step(*data())
    sum_tied_gradients(gpt.embedding.weight, (schedule.rank_of[0], schedule.rank_of[schedule.stages - 1]))
    found = {name: p.grad for name, p in gpt.named_parameters() if p.grad is not None}
    return found, value


@pytest.mark.parametrize("name, ranks", [("1F1B", 1), ("1F1B", 3), ("ZB-H1", 4), ("interleaved 1F1B", 2), ("ZB-V", 3)])
def test_a_gpt_equals_one_process(name, ranks):
    schedule = make_schedule(name, ranks, 4)
    run = launch(train, ranks, schedule)
    gpt = model()
    expected_loss = gpt.loss(*data())
    expected_loss.backward()
    expected = {name: p.grad for name, p in gpt.named_parameters()}
    together = {}
    for found, _ in run.results:
        together |= found
    assert_every_rank_has(expected, [together])
    holders = [found["embedding.weight"] for found, _ in run.results if "embedding.weight" in found]
    assert_every_rank_has(expected["embedding.weight"], holders)
    assert_every_rank_has(expected_loss.detach(), [value for _, value in run.results if value is not None])


def test_bytes():
    def program():
        weight = torch.nn.Parameter(torch.zeros(10, 4))
        weight.grad = torch.full((10, 4), float(dist.get_rank())) if dist.get_rank() else None
        sum_tied_gradients(weight, (0, 2))
        return weight.grad

    run = tinydist.launch(program, 3)
    assert run.traffic == [[0, 0, 160], [0, 0, 0], [160, 0, 0]]
    assert [grad.mean().item() for grad in run.results] == [2, 1, 2]


def test_between_two_ranks_only():
    with pytest.raises(ValueError, match=r"a tied parameter must be on two ranks, got \[0, 1, 2\] \(rank 0\)"):
        launch(lambda: sum_tied_gradients(torch.nn.Parameter(torch.zeros(2)), (0, 1, 2)), 3)


def test_untied_stages_have_a_parameter_each_that_knows_as_much():
    gpt = model()
    gpt.embedding.weight.cut = "some cut"
    stages = cut(layers_of(gpt), [2, 3, 1])
    ((first, parameter, last, copy),) = untied(stages)
    assert (first, last) == (0, 2) and parameter is gpt.embedding.weight and copy is gpt.head.weight is not parameter
    assert torch.equal(parameter, copy) and copy.cut == "some cut"
    assert untied(stages) == [] and untied(cut(layers_of(model()), [6])) == []
