"""1F1B as a plain loop, and as actions that the Worker follows: the same passes, messages, gradients and loss."""

import pytest
import torch
import torch.distributed as dist
import torch.nn.functional as F
from pipeline_parallel.tiny_pipeline import ROWS, WIDTH, batch, blocks, gradients
from tiny_training import assert_every_rank_has

import tinydist
from tinydist.pipeline_parallel import Worker, make_schedule, step_1f1b


def loop(stage, spec, ranks, microbatches):
    return step_1f1b(stage, spec, F.mse_loss, microbatches, *batch(microbatches))


def worker(stage, spec, ranks, microbatches):
    schedule = make_schedule("1F1B", ranks, microbatches)
    return Worker(schedule, {dist.get_rank(): stage}, spec, F.mse_loss).step(*batch(microbatches))


def noted(step, ranks, microbatches):
    """By rank: (loss, gradients); kinds of passes in their order; its messages' ends and bytes, in their order."""

    def program():
        rank, order = dist.get_rank(), []
        stage = blocks(ranks)[rank]
        stage.register_forward_hook(lambda *_: order.append("F"))
        stage[0].weight.register_post_accumulate_grad_hook(lambda _: order.append("B"))
        loss = step(stage, torch.empty(ROWS, WIDTH, device="meta"), ranks, microbatches)
        return (loss, gradients({rank: stage})), order

    run = tinydist.launch(program, ranks)
    results, orders = zip(*run.results)
    transfers = [event.transfer for event in run.trace.events if event.name == "message"]
    messages = [[(each.ranks, each.nbytes) for each in transfers if each.ranks[0] == rank] for rank in range(ranks)]
    return list(results), list(orders), messages


@pytest.mark.parametrize("ranks, microbatches", [(1, 3), (2, 1), (3, 2), (4, 9)])
def test_the_loop_does_what_the_worker_does(ranks, microbatches):
    found, order, messages = noted(loop, ranks, microbatches)
    expected, expected_order, expected_messages = noted(worker, ranks, microbatches)
    assert_every_rank_has(expected, [found], atol=0)
    schedule = make_schedule("1F1B", ranks, microbatches)
    assert order == expected_order == [[part.kind for part in schedule.passes(rank)] for rank in range(ranks)]
    assert messages == expected_messages and sum(map(len, messages)) >= 2 * (ranks - 1) * microbatches
