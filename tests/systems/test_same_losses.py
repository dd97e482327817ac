"""The examples: the losses of every system are ours."""

import gc
from functools import partial

import compare
import pytest
import same_step
import train_tinydist

import tinydist


@pytest.fixture(scope="module", autouse=True)
def what_there_is_already_is_not_looked_through():
    """Else the examples do, whenever they count what is held."""
    gc.freeze()


def test_the_table_of_the_notebook_has_each_way():
    assert [row["way"] for row in compare.stored()] == list(compare.WAYS)


def ours(**plan):
    """The reference: the same steps by this library on simulated ranks."""
    program = partial(train_tinydist.main, **plan)
    return tinydist.launch(program, same_step.RANKS, init=False, observe=False).results[0].losses


@pytest.mark.parametrize("name", ["DDP", "FSDP2", "Accelerate"])
def test_torchs_own_and_accelerate_run_on_simulated_ranks_too(name, monkeypatch):
    monkeypatch.setattr(same_step, "STEPS", 3)
    assert compare.found(name, backend="simulated").losses == pytest.approx(ours(**compare.WAYS[name].ours), abs=1e-5)


@pytest.fixture(scope="module")
def losses_of():
    """Of each plan, once."""
    known = {}

    def of(plan):
        key = tuple(plan.items())
        known[key] = known[key] if key in known else ours(**plan)
        return known[key]

    return of


@pytest.mark.parametrize("row", compare.stored(), ids=lambda row: row["way"])
def test_the_losses_of_20_steps_are_ours_and_the_row_is_what_is_measured(row, losses_of, systems):
    found = compare.found(row["way"])
    assert len(found.losses) == 20 and found.losses[-1] < found.losses[0] - 1
    way = compare.WAYS[row["way"]]
    apart = max(abs(one - other) for one, other in zip(found.losses, losses_of(way.ours), strict=True))
    assert apart < 1e-5 if way.same else 0.02 < apart < 0.1  # DeepSpeed's own clipping
    assert found.losses == pytest.approx(row["losses"], abs=1e-5)
    assert found.held == pytest.approx(int(row["held"]), rel=1e-3)  # what a library makes once differs


@pytest.mark.parametrize("name", ["DDP", "FSDP2", "Accelerate", "DeepSpeed ZeRO 2"])
def test_in_bf16_they_are_near(name, losses_of, systems):
    losses = compare.found(name, precision="bf16").losses
    assert losses == pytest.approx(losses_of({}), abs=2e-2) and losses != losses_of({})
