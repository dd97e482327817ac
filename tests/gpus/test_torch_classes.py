"""Autocast, GradScaler, DataLoader, torch.compile: what torch's classes are on pretended GPUs."""

import importlib
import sys

import pytest
import torch
import torch.distributed.optim
import torch.nn.functional as F
from gpus.on_gpus import on_gpus, where
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import tinydist
from tinydist.precision import autocast

# "CUDA Op-Specific Behavior" in torch.amp's documentation, by what they give in bfloat16 of (x, y) in float32
LOW, FLOAT = torch.bfloat16, torch.float32
DOCUMENTED = {
    "matmul": (LOW, lambda x, y: x @ y),
    "linear": (LOW, lambda x, y: F.linear(x, y)),
    "conv2d": (LOW, lambda x, y: F.conv2d(x[None, None], y[None, None])),
    "bmm": (LOW, lambda x, y: torch.bmm(x[None], y[None])),
    "addmm": (LOW, lambda x, y: torch.addmm(x, x, y)),
    "attention": (LOW, lambda x, y: F.scaled_dot_product_attention(x[None, None], y[None, None], y[None, None])),
    "exp": (FLOAT, lambda x, y: (x @ y).exp()),
    "softmax": (FLOAT, lambda x, y: F.softmax(x @ y, -1)),
    "layer_norm": (FLOAT, lambda x, y: F.layer_norm(x @ y, (4,))),
    "cross_entropy": (FLOAT, lambda x, y: F.cross_entropy(x @ y, torch.zeros(4, dtype=torch.long, device=x.device))),
    "mse_loss": (FLOAT, lambda x, y: F.mse_loss(x @ y, x @ y)),
    "sum": (FLOAT, lambda x, y: (x @ y).sum()),
    "pow": (FLOAT, lambda x, y: (x @ y) ** 2),
    "norm": (FLOAT, lambda x, y: (x @ y).norm()),
    "relu": (LOW, lambda x, y: F.relu(x @ y)),
    "add": (LOW, lambda x, y: x @ y + x @ y),
    "add both": (FLOAT, lambda x, y: x @ y + x),
    "addcmul": (FLOAT, lambda x, y: torch.addcmul(x @ y, x, y)),
}


@pytest.mark.parametrize("name", DOCUMENTED)
def test_autocast_goes_by_cudas_lists(name):
    dtype, function = DOCUMENTED[name]

    def program():
        x, y = torch.eye(4, device="cuda"), torch.ones(4, 4, device="cuda")
        with torch.autocast("cuda", torch.bfloat16):
            found = function(x, y)
        with autocast("cuda", torch.bfloat16):
            expected = function(x.cpu(), y.cpu())
        return found.dtype, where(found), torch.equal(found.cpu(), expected)

    assert on_gpus(program) == (dtype, "cuda:0", True)


def test_autocast_in_all_its_forms():
    def program():
        x = torch.ones(4, 4, device="cuda")
        found = []
        with torch.autocast("cuda", dtype=torch.bfloat16):
            found += [(x @ x).dtype, torch.is_autocast_enabled(), torch.get_autocast_gpu_dtype()]
            with torch.autocast("cuda", enabled=False):
                found += [(x @ x).dtype, torch.is_autocast_enabled("cuda")]
            with torch.autocast("cuda", dtype=torch.float16):
                found.append((x @ x).dtype)
        with torch.autocast("cuda"):
            found.append((x @ x).dtype)
        with torch.amp.autocast(device_type="cuda"):
            found.append((x @ x).dtype)
        found += [
            torch.autocast("cuda", torch.bfloat16)(torch.mm)(x, x).dtype,
            (x @ x).dtype,
            torch.is_autocast_enabled(),
        ]
        return found

    half = torch.float16
    assert on_gpus(program) == [LOW, True, LOW, FLOAT, False, half, half, half, LOW, FLOAT, False]


@pytest.mark.filterwarnings("ignore::FutureWarning")
@pytest.mark.parametrize("make", [lambda: torch.amp.GradScaler("cuda"), lambda: torch.cuda.amp.GradScaler()])
def test_grad_scaler(make):
    def program():
        scaler, model = make(), nn.Linear(4, 4).cuda()
        optimizer = torch.optim.SGD(model.parameters(), 0.1)
        before, found = model.weight.tolist(), []
        for factor in (float("inf"), 1e-3):
            optimizer.zero_grad()
            with torch.autocast("cuda", torch.float16):
                loss = model(torch.ones(2, 4, device="cuda")).float().sum() * factor
            scaler.scale(loss).backward()
            scaler.unscale_(optimizer)
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            scaler.step(optimizer)
            scaler.update()
            found += [scaler.get_scale(), model.weight.tolist() == before]
        return found, where(model.weight.grad)

    assert on_gpus(program) == ([32768.0, True, 32768.0, False], "cuda:0")


def test_data_loaders_have_no_workers():
    def program():
        data = TensorDataset(torch.arange(8.0))
        how = dict(num_workers=2, persistent_workers=True, prefetch_factor=2, multiprocessing_context="fork", timeout=5)
        found = []
        for (x,) in DataLoader(data, batch_size=4, pin_memory=True, **how):
            found.append((where(x), x.is_pinned(), where(x.to("cuda", non_blocking=True))))
        positional = DataLoader(data, 4, False, None, None, 2)
        return found, [x.tolist() for (x,) in positional]

    run = tinydist.launch(program, 1, gpus=True)
    assert run.results[0] == ([("cpu", True, "cuda:0")] * 2, [[0, 1, 2, 3], [4, 5, 6, 7]])
    assert run.replaced == {"DataLoader(num_workers=2)": "the rank loads its data itself"}


def test_compile_is_eager_and_said_once():
    def program():
        model = torch.compile(nn.Linear(2, 2).cuda(), mode="max-autotune")
        model.compile()

        @torch.compile(fullgraph=True)
        def twice(x):
            return 2 * x

        return where(model(torch.ones(1, 2, device="cuda")), torch.compile(twice)(torch.ones(2, device="cuda")))

    run = tinydist.launch(program, 2, gpus=True)
    assert run.results == ["cuda:0 cuda:0"] * 2
    assert run.replaced == {"torch.compile": "runs eagerly", "Module.compile": "runs eagerly"}


def plus_zeros(x: torch.Tensor):
    return x + torch.zeros(2, device=x.device)


def test_torchscript_is_eager_and_torchs_own_is_compiled():
    """ZeroRedundancyOptimizer imports functions that torch compiles, and one of them calls torch.tensor."""

    def program():
        for name in [name for name in sys.modules if name.startswith("torch.distributed.optim.functional")]:
            importlib.reload(sys.modules[name])
        model = torch.jit.script(nn.Linear(2, 2).cuda())
        return where(torch.jit.script(plus_zeros)(torch.ones(2, device="cuda")), model(torch.ones(1, 2, device="cuda")))

    assert torch.distributed.optim.ZeroRedundancyOptimizer  # which imports them
    run = tinydist.launch(program, 2, gpus=True)
    assert run.results == ["cuda:0 cuda:0"] * 2
    assert run.replaced == {"torch.jit.script": "runs eagerly"}
    assert isinstance(torch.jit.script(plus_zeros), torch.jit.ScriptFunction), "after the launch"


def test_nothing_was_replaced_where_nothing_was_asked():
    assert tinydist.launch(lambda: torch.ones(1, device="cuda"), 1, gpus=True).replaced == {}
    assert tinydist.launch(lambda: None, 1).replaced == {}


def test_data_parallel_of_one_process_is_refused():
    def program():
        nn.DataParallel(nn.Linear(2, 2).cuda())(torch.ones(4, 2, device="cuda"))

    with pytest.raises(NotImplementedError, match="pretended GPUs cannot answer this call"):
        on_gpus(program)
