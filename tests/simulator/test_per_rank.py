"""What libraries keep once in a process is each rank's own: torch's hooks, Accelerate, and what a program names."""

import builtins
import sys
import types
import warnings

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor.debug import CommDebugMode
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

import tinydist
from tinydist.simulator.per_rank import KNOWN, owner_of


@pytest.fixture
def library(monkeypatch):
    """A module ``keeper`` with what libraries keep: a global and a class's attribute."""
    keeper = types.ModuleType("keeper")
    keeper.manager, keeper.State = None, type("State", (), {"shared": {}})
    monkeypatch.setitem(sys.modules, "keeper", keeper)
    return keeper


def remember(keeper):
    keeper.manager = dist.get_rank()
    keeper.State.shared["rank"] = dist.get_rank()
    dist.barrier()
    return keeper.manager, keeper.State.shared


PLACES = ["keeper:manager", "keeper:State.shared"]


def test_without_a_word_ranks_share_it(library):
    assert tinydist.launch(lambda: remember(library), 3).results == [(2, {"rank": 2})] * 3


def test_each_rank_has_its_own_and_the_kernel_too(library):
    library.manager = "mine"
    run = tinydist.launch(lambda: remember(library), 3, per_rank=PLACES)
    assert run.results == [(rank, {"rank": rank}) for rank in range(3)]
    assert (library.manager, library.State.shared) == ("mine", {})


def test_a_rank_begins_with_what_the_kernel_has(library):
    library.State.shared["old"] = 1
    run = tinydist.launch(lambda: remember(library)[1], 2, per_rank=PLACES)
    assert run.results == [{"old": 1, "rank": rank} for rank in range(2)]


@pytest.mark.parametrize("fails", [False, True])
def test_the_kernel_gets_its_own_back(library, fails):
    def program():
        remember(library)
        assert not fails

    if fails:
        with pytest.raises(AssertionError):
            tinydist.launch(program, 2, per_rank=PLACES)
    else:
        tinydist.launch(program, 2, per_rank=PLACES)
    assert (library.manager, library.State.shared) == (None, {})


@pytest.mark.parametrize("place", ["keeper", "keeper:", ":manager", 3])
def test_a_place_has_a_form(library, place):
    with pytest.raises(ValueError, match=r'entries must have the form "package.module:Class.attribute", got'):
        tinydist.launch(dist.barrier, 2, per_rank=[place])


@pytest.mark.parametrize("place", ["keeper:manger", "keeper:State.shard", "keeper:Stat.shared"])
def test_a_mistyped_place_is_not_passed_over(library, place):
    with pytest.raises(ValueError, match=f"per_rank names {place}, which is not found.*set it to None first"):
        tinydist.launch(dist.barrier, 2, per_rank=[place])


def test_a_module_that_does_not_exist_is_named():
    with pytest.raises(ModuleNotFoundError, match="no_such_module"):
        tinydist.launch(dist.barrier, 2, per_rank=["no_such_module:name"])


def test_known_libraries_need_no_word_even_if_a_rank_imports_them(monkeypatch):
    def program():
        if "picotron.process_group_manager" not in sys.modules:
            monkeypatch.setitem(sys.modules, "picotron.process_group_manager", types.ModuleType("manager"))
        manager = sys.modules["picotron.process_group_manager"]
        before = getattr(manager, "process_group_manager", None)
        manager.process_group_manager = dist.get_rank()
        dist.barrier()
        return before, manager.process_group_manager

    assert tinydist.launch(program, 3).results == [(None, rank) for rank in range(3)]


def test_each_rank_catches_its_own_warnings():
    def program():
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            dist.barrier()
            warnings.warn(f"of rank {dist.get_rank()}", stacklevel=1)
            dist.barrier()
            return [str(each.message) for each in caught]

    before = list(warnings.filters)
    assert tinydist.launch(program, 3).results == [[f"of rank {rank}"] for rank in range(3)]
    assert warnings.filters == before


def test_a_rank_that_silences_print_is_the_only_one(capsys):
    def program():
        if dist.get_rank() != 1:
            builtins.print = lambda *words: None
        dist.barrier()
        print("from", dist.get_rank())

    before = print
    tinydist.launch(program, 3)
    assert capsys.readouterr().out == "[rank 1] from 1\n" and print is before


def test_ranks_share_what_hydras_modules_register_and_nothing_of_its_run(monkeypatch):
    for module in ("hydra", "hydra.core", "hydra.core.singleton"):
        monkeypatch.setitem(sys.modules, module, types.ModuleType(module))
    single = sys.modules["hydra.core.singleton"].Singleton = type("Singleton", (), {"_instances": {}})
    store, run = type("ConfigStore", (), {}), type("GlobalHydra", (), {})
    single._instances[store] = "as imported"

    def program():
        single._instances.setdefault(run, dist.get_rank())
        dist.barrier()
        return single._instances[store], single._instances[run]

    assert tinydist.launch(program, 2).results == [("as imported", 0), ("as imported", 1)]
    assert run not in single._instances


@pytest.mark.parametrize("where", [where for where in KNOWN if where.startswith("torch.")])
def test_what_torch_keeps_is_where_the_table_says(where):
    __import__(where.partition(":")[0])
    assert KNOWN[where].keys() <= vars(owner_of(where)).keys()


def test_a_hook_on_all_modules_is_one_ranks_own():
    def program():
        seen = []
        if dist.get_rank() == 0:
            nn.modules.module.register_module_forward_hook(lambda *_: seen.append(dist.get_rank()))
        dist.barrier()
        nn.Linear(2, 2)(torch.ones(2))
        dist.barrier()
        return seen

    assert tinydist.launch(program, 3).results == [[0], [], []]
    assert not nn.modules.module._global_forward_hooks


def test_what_ranks_share_is_a_ranks_own_once_it_changes_it():
    """How DTensor treats operators, which `loss_parallel()` changes in place."""
    import torch.distributed.tensor  # noqa: F401

    dispatcher = owner_of("torch.distributed.tensor:DTensor._op_dispatcher")
    before = dict(dispatcher._custom_op_handlers)

    def program():
        if dist.get_rank() == 1:
            dispatcher._custom_op_handlers["mine"] = None
        dist.barrier()
        return "mine" in dispatcher._custom_op_handlers

    assert tinydist.launch(program, 3).results == [False, True, False]
    assert dispatcher._custom_op_handlers == before


def test_a_rank_that_fails_leaves_no_hook_behind():
    def program():
        dist.barrier()
        nn.modules.module.register_module_forward_hook(lambda *_: None)
        raise KeyError

    with pytest.raises(KeyError):
        tinydist.launch(program, 2)
    assert (
        not nn.modules.module._global_forward_hooks
        and not torch.optim.Optimizer.__init__.__globals__["_global_optimizer_pre_hooks"]
    )


def test_collectives_are_counted_by_each_rank_for_itself():
    def program():
        model = nn.Sequential(nn.Linear(4, 6 * 3), nn.ReLU(), nn.Linear(6 * 3, 4))
        mesh = init_device_mesh("cpu", (3,))
        model = parallelize_module(model, mesh, {"0": ColwiseParallel(), "2": RowwiseParallel()})
        with CommDebugMode() as mode:
            model(torch.ones(2, 4, requires_grad=True)).sum().backward()
        return mode.get_total_counts()

    assert tinydist.launch(program, 3).results == [2, 2, 2]  # one in forward, one in backward


def train_with_accelerate():
    """Losses over all samples, and what the process takes itself for. An ordinary script, as for real processes."""
    from accelerate import Accelerator
    from accelerate.utils import gather, set_seed

    set_seed(0)
    accelerator = Accelerator(cpu=True, gradient_accumulation_steps=2)
    model = nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.2, momentum=0.9)
    samples = torch.utils.data.TensorDataset(torch.randn(48, 8), torch.randn(48, 1))
    loader = torch.utils.data.DataLoader(samples, batch_size=8 // accelerator.num_processes)
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
    losses = []
    for inputs, targets in loader:
        with accelerator.accumulate(model):
            loss = nn.functional.mse_loss(model(inputs), targets)
            accelerator.backward(loss)
            if accelerator.sync_gradients:
                accelerator.clip_grad_norm_(model.parameters(), 0.5)
            optimizer.step()
            optimizer.zero_grad()
        losses.append(gather(loss.detach()).mean())
    return torch.stack(losses), accelerator.process_index, accelerator.num_processes


def test_an_unmodified_script_of_accelerate_gives_the_losses_of_one_process():
    ((alone, *_),) = tinydist.launch(train_with_accelerate, 1, init=False).results
    results = tinydist.launch(train_with_accelerate, 4, init=False).results
    assert [place for _, *place in results] == [[rank, 4] for rank in range(4)]
    for losses, *_ in results:
        torch.testing.assert_close(losses, alone)
    assert alone[-1] < alone[0]
