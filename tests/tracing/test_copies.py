"""Copies to the host and back: they take their time while the device computes, one after another in each direction."""

import pytest
import torch

import tinydist
from tinydist.annotate import begin_copy
from tinydist.hardware import Cluster, Link


def program():
    x = torch.ones(256, 256)
    ends = [begin_copy(name, x, x.nbytes, 1e-3) for name in ("to host", "to host", "to device")]
    x.mm(x)
    for end in ends:
        end()
    x.add(x)


def test_they_overlap_compute_and_each_other_but_for_those_of_one_direction():
    run = tinydist.launch(program, 2, cluster=Cluster("laptop CPU", 2, Link("any", 0.0, 1e9)))
    for rank in range(2):
        there, back = (run.trace.of(rank, f"{rank} {name}") for name in ("to host", "to device"))
        issued = there[0].issued
        assert [copy.start - issued for copy in [*there, *back]] == pytest.approx([0, 1e-3, 0])
        assert [copy.end - copy.start for copy in [*there, *back]] == pytest.approx([1e-3] * 3)
        product, wait, *_ = [e for e in run.trace.of(rank, "compute") if e.name in ("mm", "wait")]
        assert product.start == issued and product.end < there[0].end and wait.start == product.end
        assert run.trace.of(rank, "compute")[-1].start == there[1].end
    assert sum(map(sum, run.traffic)) == 0  # to no other rank


def test_where_nothing_is_observed_they_are_nothing():
    tinydist.launch(program, 2, observe=False)
    begin_copy("to host", torch.ones(1), 4, 1.0)()
