"""What takes no part in the loss: found by one walk over the graph, so that its bucket need not wait."""

from dataclasses import dataclass, replace

import pytest
import torch
from torch import nn

import tinydist
from tinydist.data_parallel import DDP, unused
from tinydist.data_parallel.unused import nodes_under
from tinydist.hardware import Cluster, Link
from tinydist.hardware.devices import A100_80GB
from tinydist.model import GPT, batch


def weights(count):
    return [nn.Parameter(torch.full((), float(number))) for number in range(count)]


@dataclass
class Output:
    logits: torch.Tensor
    steps: int = 3


@pytest.mark.parametrize(
    "wrap",
    [
        lambda y: y,
        lambda y: (None, [y]),
        lambda y: {"logits": y, "more": {"steps": 3}},
        lambda y: Output(y),
    ],
    ids=["a tensor", "a tuple", "a dict", "a dataclass"],
)
def test_those_that_the_output_does_not_need(wrap):
    a, b, c, d = weights(4)
    assert unused([a, b, c, d], wrap(a * b.sin() + a + c.detach())) == [c, d]


def test_a_parameter_that_is_the_output_itself():
    a, b = weights(2)
    assert unused([a, b], (a, torch.ones(1))) == [b]


def test_without_a_tensor_nothing_is_known():
    assert unused(weights(2), {"loss": 0.5}) == []


def test_each_node_is_visited_once_however_many_ways_lead_to_it():
    (x,) = weights(1)
    for _ in range(60):  # 2^60 ways
        x = x + x
    assert len(list(nodes_under([x]))) == 60 + 1


def test_the_walk_sees_what_backward_runs():
    """As many nodes as call their hooks: each of them is gone over twice."""
    model = GPT()
    loss, ran = model.loss(*batch(0, 2)), []
    nodes = list(nodes_under([loss]))
    for node in nodes:
        node.register_hook(lambda *_: ran.append(1))
    loss.backward()
    assert len(nodes) == len(ran) > len(list(model.parameters()))


class Late(nn.Module):
    """Layers in a row, and a spare one in the bucket that is sent first."""

    def __init__(self, layers=6, width=512):
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(width, width, bias=False) for _ in range(layers)])
        self.spare = nn.Linear(1, 1)

    def forward(self, x):
        for layer in self.layers:
            x = layer(x)
        return x


def test_a_bucket_with_an_unused_parameter_is_sent_in_the_middle_of_backward():
    def program():
        model = DDP(Late(), bucket_bytes=2**20, find_unused_parameters=True)
        model(torch.ones(256, 512)).sum().backward()

    slow = Cluster(replace(A100_80GB, launch_overhead=0.0), 2, Link("slow", 5e-6, 15e9))
    events = tinydist.launch(program, 2, cluster=slow).trace.of(0)
    first, *_ = [event.start for event in events if event.name == "all_reduce"]
    products = [event.start for event in events if event.name == "mm"]
    assert sum(start >= first for start in products) == 2 * 4 + 1, "all of backward through the layers below"


def test_a_gradient_that_comes_by_another_way_than_forwards_output_is_an_error():
    def program():
        model = DDP(Late(2, 8), find_unused_parameters=True)
        (model(torch.ones(3, 8)).sum() + model.module.spare.weight.sum()).backward()

    rule = r"the last forward output is independent of spare\.weight, but it got a gradient: its bucket is reduced"
    with pytest.raises(RuntimeError, match=rf"DDP: {rule} \(rank 0\)"):
        tinydist.launch(program, 2)


def test_what_was_used_while_nothing_was_sent_counts_as_used():
    """A microbatch without sync has used the spare one, the last has not."""

    def program():
        model = DDP(Late(2, 8), find_unused_parameters=True)
        with model.no_sync():
            model(torch.ones(3, 8)).sum().backward()
            model.module.spare(torch.ones(1)).sum().backward()
        model(torch.ones(3, 8)).sum().backward()
        return model.module.spare.weight.grad.item()

    assert tinydist.launch(program, 2).results == [1.0, 1.0]
