"""``%%ranks`` in a notebook: on simulated ranks and on processes, the same cells and the same results."""

import re

import pytest
from IPython.core.error import UsageError

from tinydist.processes.pool import pool


@pytest.fixture(scope="module", autouse=True)
def no_workers_afterwards():
    yield
    pool.stop()


@pytest.fixture(params=["2", "2 --backend gloo"], ids=["simulated", "gloo"])
def world(request):
    """The line of a cell, for two ranks."""
    return request.param


# What is shown


def test_prints_and_the_last_line_are_shown_by_rank(notebook, world):
    text = "x = torch.tensor([dist.get_rank() + 1])\nprint('I am', dist.get_rank())\ndist.all_reduce(x)\nx"
    assert notebook.on_ranks(world, text) == ["[rank 0] I am 0", "[rank 1] I am 1", "ranks 0-1: tensor([3])"]
    assert notebook.on_ranks(world, "dist.get_rank() * 10") == ["rank 0: 0", "rank 1: 10"]
    assert notebook.on_ranks(world, "7 if dist.get_rank() else None") == ["rank 1: 7"]


def test_a_semicolon_hides_the_last_line_and_the_picture(notebook):
    notebook.run("%%ranks 2\ndist.all_reduce(torch.ones(3))\n5")
    assert "ranks 0-1: 5" in notebook.shown.stdout
    assert [sorted(each.data) for each in notebook.shown.outputs] == [["image/png"]]
    assert notebook.run("%%ranks 2\ndist.all_reduce(torch.ones(3))\n5;") == "" and notebook.shown.outputs == []


def test_the_cluster_is_that_of_the_picture(notebook):
    text = "dist.all_reduce(torch.ones(10**6))"
    notebook.run(f'%%ranks 2 --cluster "H100 pod"\n{text}')
    fast = notebook["ranks.run.seconds"]
    notebook.run(f"%%ranks 2\n{text}")
    assert fast < notebook["ranks.run.seconds"]


def test_there_are_four_ranks_where_no_number_is_given(notebook):
    assert notebook.on_ranks("", "dist.get_world_size()") == ["ranks 0-3: 4"]


# What a rank has


def test_each_rank_has_its_own_of_what_the_notebook_has(notebook, world):
    notebook.run(
        "seen, x = [], torch.zeros(1)\n"
        "def look():\n    seen.append(dist.get_rank())\n    return seen\n"
        "class Looker:\n    all = []\n"
        "    def look(self):\n        self.all.append(dist.get_rank())\n        return look()\n"
    )
    told = notebook.on_ranks(
        world, "x += 1 + dist.get_rank()\nlook()\nlook() is seen, Looker().look(), Looker.all, x.item()"
    )
    assert told == ["rank 0: (True, [0, 0, 0], [0], 1.0)", "rank 1: (True, [1, 1, 1], [1], 2.0)"]
    assert notebook["seen"] == notebook["Looker.all"] == [] and notebook["x"].item() == 0


def test_what_a_cell_binds_is_found_by_the_notebooks_functions(notebook, world):
    notebook.run("step = 1\ndef next_step():\n    return step + 1")
    assert notebook.on_ranks(world, "step = 10 + dist.get_rank()\nnext_step()") == ["rank 0: 11", "rank 1: 12"]
    assert notebook["step"] == 1


def test_what_two_names_share_they_share_on_a_rank(notebook, world):
    notebook.run("layer = torch.nn.Linear(2, 2)\noptimizer = torch.optim.SGD(layer.parameters(), 0.1)")
    text = "optimizer.param_groups[0]['params'][0] is layer.weight"
    assert notebook.on_ranks(world, text) == ["ranks 0-1: True"]


def test_modules_are_shared_and_star_imports_work(notebook, world):
    assert notebook.on_ranks(world, "from math import *\nimport os.path\nfloor(2.5), os.sep") == ["ranks 0-1: (2, '/')"]


def test_what_cannot_be_copied_is_an_error_where_it_is_used(notebook, world):
    notebook.run("import threading\nlock, calls = threading.Lock(), 0\ndef locked():\n    return lock")
    assert notebook.on_ranks(world, "lock = dist.get_rank()\nlocked()") == ["rank 0: 0", "rank 1: 1"]
    told = notebook.fails(f"%%ranks {world}\n1\nlocked()")
    assert "NameError: name 'lock' is not defined\nThe notebook has lock, but each rank needs a copy: " in told


def test_a_cell_begins_anew(notebook, world):
    notebook.on_ranks(world, "mine = 1")
    assert "name 'mine' is not defined" in notebook.fails(f"%%ranks {world}\nmine")


# What stays


def test_a_rank_can_be_looked_at_in_the_next_cell(notebook, world):
    notebook.on_ranks(world, "loss = torch.tensor(dist.get_rank() + 0.5)\nlines = (line for line in 'ab')\nloss * 2")
    assert notebook["[rank.loss.item() for rank in ranks]"] == [0.5, 1.5]
    assert notebook["ranks[1]._.item()"] == 3.0 and notebook["dir(ranks[1])"] == notebook["dir(ranks[0])"]
    assert notebook["repr(ranks)"] == "<2 ranks: dist, lines, loss, torch>"
    with pytest.raises(AttributeError, match=r"rank 1 has no variable 'los'\. Did you mean loss\?"):
        notebook["ranks[1].los"]
    with pytest.raises(AttributeError, match="rank 1: its variables can only be set in a %%ranks cell"):
        notebook.run("ranks[1].loss = 3")
    with pytest.raises(IndexError):
        notebook["ranks[2]"]


def test_what_cannot_be_copied_from_a_process_is_told_and_the_ranks_go_on(notebook):
    notebook.on_ranks("2 --backend gloo --keep", "lines = (line for line in 'ab')\nn = 3")
    with pytest.raises(RuntimeError, match=r"rank 1: lines: it cannot be copied to the notebook \(cannot pickle"):
        notebook["ranks[1].lines"]
    assert notebook.on_ranks("2 --backend gloo", "next(lines), n") == ["ranks 0-1: ('a', 3)"]


def test_keep_keeps_variables_and_random_numbers_for_the_next_cell(notebook, world):
    notebook.run("model = torch.nn.Linear(1, 1, bias=False)\ndef weight():\n    return model.weight.item()")
    add = "with torch.no_grad():\n    model.weight += 1\n"
    first = notebook.on_ranks(f"{world} --keep", f"{add}before, drawn = weight(), [torch.rand(1).item()]")
    assert first == []
    second = f"{add}drawn.append(torch.rand(1).item())\nround(weight() - before, 3)"
    assert notebook.on_ranks(f"{world} --keep", second) == ["ranks 0-1: 1.0"]
    notebook.run("torch.manual_seed(0);")
    assert notebook["ranks[1].drawn"] == [notebook["torch.rand(1).item()"], notebook["torch.rand(1).item()"]]
    assert notebook.on_ranks(world, "round(weight() - before, 3)") == ["ranks 0-1: 1.0"]
    assert "name 'before' is not defined" in notebook.fails(f"%%ranks {world}\nbefore")  # that cell kept nothing


def test_a_group_that_is_kept_serves_in_the_next_cells(notebook, world):
    """DDP keeps the default group of the cell in which it was made."""
    notebook.run("ddp = torch.nn.parallel.DistributedDataParallel")
    make = "model = ddp(torch.nn.Linear(1, 1, bias=False))\npair = dist.new_group([0, 1])"
    assert notebook.on_ranks(f"{world} --keep", make) == []
    step = "model.zero_grad()\nmodel(torch.full((1, 1), {} + dist.get_rank())).backward()\nmodel.module.weight.grad"
    for by in (1.0, 5.0):
        assert notebook.on_ranks(f"{world} --keep", step.format(by)) == [f"ranks 0-1: tensor([[{by + 0.5:.4f}]])"]
    both = "x = torch.ones(1)\nfor group in (pair, None):\n    dist.all_reduce(x, group=group)\nx.item()"
    assert notebook.on_ranks(world, both) == ["ranks 0-1: 4.0"]


def test_a_name_that_the_notebook_binds_anew_is_copied_anew(notebook, world):
    notebook.run("scale = [1]\ndef scaled():\n    return scale[0] * factor")
    assert notebook.on_ranks(f"{world} --keep", "scale[0] = 5; factor = 2\nscaled()") == ["ranks 0-1: 10"]
    assert notebook.on_ranks(f"{world} --keep", "scaled()") == ["ranks 0-1: 10"]
    notebook.run("scale = [3]")
    assert notebook.on_ranks(f"{world} --keep", "scaled()") == ["ranks 0-1: 6"]
    notebook.run("factor = 7\ndef scaled():\n    return -scale[0] * factor")
    assert notebook.on_ranks(world, "scaled()") == ["ranks 0-1: -21"]
    notebook.run("del factor")


def test_other_ranks_begin_anew_and_that_is_said(notebook):
    notebook.on_ranks("2 --keep", "mine = 1")
    told = notebook.fails("%%ranks 3 --keep\nmine")
    assert "The kept ranks were stopped, because this cell asks for others: <2 ranks: mine>" in told


# Errors


def test_an_error_names_the_cells_own_line(notebook, world):
    notebook.run("def divide(x):\n    return x / 0")
    told = notebook.fails(f"%%ranks {world}\n\nx = 3\nif dist.get_rank() == 1:\n    divide(x)\ndist.barrier()")
    assert "ZeroDivisionError" in told and "on rank 1 of 2" in told and "site-packages" not in told
    assert "tinydist/magic" not in told
    assert re.search(r"----> 5     divide\(x\)" if world == "2" else r"line 5, in <module>\n +divide\(x\)", told)


def test_a_hang_is_reported_with_the_cell_and_its_line(notebook):
    told = notebook.fails("%%ranks 2\nx = 1\nif dist.get_rank():\n    dist.barrier()")
    cell = notebook.shell.execution_count - 1
    assert f"missing: rank 0\n    at Cell In[{cell}], line 4: dist.barrier()" in told


def test_after_an_error_the_ranks_begin_anew(notebook, world):
    notebook.on_ranks(f"{world} --keep", "mine = 1")
    told = notebook.fails(f"%%ranks {world} --keep\nmine += 1\n1 / 0")
    assert "The ranks ended and their variables are lost: the next %%ranks cell starts new ones." in told
    assert "name 'mine' is not defined" in notebook.fails(f"%%ranks {world}\nmine")


def test_processes_are_missed_after_an_error(notebook):
    notebook.on_ranks("2 --backend gloo", "mine = 1")
    notebook.fails("%%ranks 2 --backend gloo\n1 / 0")
    with pytest.raises(RuntimeError, match="rank 1: mine: its process has exited"):
        notebook["ranks[1].mine"]


def test_simulated_ranks_can_be_looked_at_after_an_error(notebook):
    notebook.fails("%%ranks 2\nmine = dist.get_rank()\ndist.barrier()\n1 / mine")
    assert notebook["[rank.mine for rank in ranks]"] == [0, 1]


def test_a_rank_is_no_variable_of_a_rank(notebook):
    notebook.on_ranks("2", "mine = 1")
    told = notebook.fails("%%ranks 2\nranks[0].mine")
    assert (
        "The notebook has ranks, but each rank needs a copy: ranks cannot be pickled, only used in the notebook" in told
    )


def test_processes_that_have_ended_meanwhile_are_missed(notebook):
    notebook.on_ranks("2 --backend gloo --keep", "mine = 1")
    pool.stop()
    with pytest.raises(RuntimeError, match="rank 0: mine: its process has exited"):
        notebook["ranks[0].mine"]
    told = notebook.fails("%%ranks 2 --backend gloo\nmine")
    assert "the processes that kept the ranks' variables have exited: start again" in told


def test_a_syntax_error_ends_no_ranks(notebook):
    notebook.on_ranks("2 --keep", "mine = 1")
    told = notebook.fails("%%ranks 2 --keep\nx = 1\nif x:\nprint(x)")
    assert re.search(r"Cell In\[\d+\], line 4\n +print\(x\)", told) and "IndentationError" in told
    assert notebook.on_ranks("2", "mine") == ["ranks 0-1: 1"]


@pytest.mark.parametrize(
    "line, kind, told",
    [
        ("two", UsageError, "argument ranks: invalid int value: 'two'"),
        ("2 --kept", UsageError, "unrecognized arguments: --kept"),
        ("0", ValueError, "launch: ranks must be an integer >= 1, got 0"),
        ("2 --backend tcp", ValueError, "launch: backend must be one of simulated, gloo, nccl, got 'tcp'"),
        ("2 --cluster pod", ValueError, "launch: cluster must be a hardware.Cluster or one of"),
        ('2 --cluster "pod', UsageError, "No closing quotation"),
    ],
)
def test_a_line_that_asks_for_what_there_is_not(notebook, line, kind, told):
    with pytest.raises(kind) as error:
        notebook.run(f"%%ranks {line}\n1")
    assert told in str(error.value)


def test_sys_exit_ends_a_rank_and_not_the_notebook(notebook):
    assert notebook.on_ranks("2", "import sys\nif dist.get_rank(): sys.exit()\n3") == ["rank 0: 3"]


def test_with_gpus_a_cell_sees_cuda_devices_also_the_next_one(notebook):
    seen = notebook.on_ranks("2 --gpus --keep", "x = torch.ones(3, device='cuda')\nstr(x.device)")
    assert seen == ["ranks 0-1: 'cuda:0'"]
    seen = notebook.on_ranks("2 --gpus", "str(x.device), torch.cuda.memory_allocated()")
    assert seen == ["ranks 0-1: ('cuda:0', 12)"]
    assert notebook.on_ranks("2", "torch.cuda.is_available()") == ["ranks 0-1: False"]
