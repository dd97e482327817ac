"""Autocast: operator by operator what torch's own does, on CPU, and by CUDA's lists on fake CUDA tensors."""

from contextlib import contextmanager, nullcontext

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch._subclasses import FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.checkpoint import checkpoint

import tinydist
from tinydist.model import GPT, GPTConfig, batch
from tinydist.precision import autocast
from tinydist.precision.autocast import RULES

LOW, FULL = torch.bfloat16, torch.float32


def torchs_autocast():
    return torch.autocast("cpu", LOW)


# Operators: x and y are [4, 8, 8], each in any dtype. Where torch refuses a mixture of dtypes, ours may do better.


def one(x):
    return x.select(0, 0)  # fake CUDA tensors cannot be indexed without a GPU


OPERATORS = {
    "x @ y": lambda x, y: x @ y,
    "y.__rmatmul__": lambda x, y: y.__rmatmul__(x),
    "matmul": torch.matmul,
    "method matmul": lambda x, y: x.matmul(y),
    "mm": lambda x, y: torch.mm(one(x), one(y)),
    "bmm": torch.bmm,
    "addmm": lambda x, y: torch.addmm(one(x), one(y), one(x)),
    "baddbmm": lambda x, y: torch.baddbmm(x, y, x),
    "addbmm": lambda x, y: torch.addbmm(one(x), y, x),
    "mv": lambda x, y: torch.mv(one(x), one(one(x))),
    "einsum": lambda x, y: torch.einsum("btd,bde->bte", x, y),
    "multi_dot": lambda x, y: torch.linalg.multi_dot([one(x), one(y), one(x)]),
    "linear": lambda x, y: F.linear(x, one(y), one(one(y))),
    "conv1d": lambda x, y: F.conv1d(x, y.narrow(2, 0, 3)),
    "conv2d": lambda x, y: F.conv2d(x.view(1, 8, 4, 8), y.view(32, 8, 1, 1)),
    "conv3d": lambda x, y: F.conv3d(x.view(1, 8, 4, 4, 2), y.view(4, 8, 2, 2, 2)),
    "conv_transpose2d": lambda x, y: F.conv_transpose2d(x.view(1, 8, 4, 8), y.view(8, 4, 8, 1)),
    "prelu": lambda x, y: F.prelu(x, one(one(y))),
    "attention": lambda x, y: F.scaled_dot_product_attention(*(each.view(1, 4, 8, 8) for each in (x, y, y))),
    "embedding": lambda x, y: F.embedding(torch.zeros(4, dtype=torch.long, device=x.device), one(x)),
    "add": lambda x, y: x + y,
    "sub": lambda x, y: x - y,
    "mul": lambda x, y: x * y,
    "div": lambda x, y: x / y,
    "1 / x": lambda x, y: 1 / x,
    "x + 1": lambda x, y: x + 1,
    "cat": lambda x, y: torch.cat([x, y]),
    "stack": lambda x, y: torch.stack((x, y)),
    "where": lambda x, y: torch.where(x > 0, x, y),
    "relu": lambda x, y: F.relu(x),
    "gelu": lambda x, y: F.gelu(x),
    "gelu tanh": lambda x, y: F.gelu(x, approximate="tanh"),
    "silu": lambda x, y: F.silu(x),
    "sigmoid": lambda x, y: torch.sigmoid(x),
    "tanh": lambda x, y: x.tanh(),
    "softplus": lambda x, y: F.softplus(x),
    "softmax": lambda x, y: F.softmax(x, dim=-1),
    "method softmax": lambda x, y: x.softmax(-1),
    "softmax, dtype": lambda x, y: torch.softmax(x, -1, dtype=torch.float32),
    "log_softmax": lambda x, y: F.log_softmax(x, dim=-1),
    "logsumexp": lambda x, y: x.logsumexp(-1),
    "exp": lambda x, y: x.exp(),
    "log": lambda x, y: torch.log(x),
    "pow": lambda x, y: torch.pow(x, 2),
    "x**2": lambda x, y: x**2,
    "2**x": lambda x, y: 2**x,
    "square": lambda x, y: x.square(),
    "sqrt": lambda x, y: x.sqrt(),
    "rsqrt": lambda x, y: x.rsqrt(),
    "sum": lambda x, y: x.sum(),
    "sum, dim": lambda x, y: x.sum(-1),
    "mean": lambda x, y: x.mean(),
    "var": lambda x, y: x.var(),
    "prod": lambda x, y: x.prod(),
    "cumsum": lambda x, y: x.cumsum(0),
    "norm": lambda x, y: x.norm(),
    "vector_norm": lambda x, y: torch.linalg.vector_norm(x),
    "normalize": lambda x, y: F.normalize(x),
    "cosine_similarity": lambda x, y: F.cosine_similarity(x, y),
    "max": lambda x, y: x.max(),
    "layer_norm": lambda x, y: F.layer_norm(x, (8,)),
    "group_norm": lambda x, y: F.group_norm(x, 2),
    "rms_norm": lambda x, y: F.rms_norm(x, (8,)),
    "batch_norm": lambda x, y: F.batch_norm(x, None, None, training=True),
    "dropout": lambda x, y: F.dropout(x, 0.5),
    "max_pool2d": lambda x, y: F.max_pool2d(x, 2),
    "avg_pool2d": lambda x, y: F.avg_pool2d(x, 2),
    "adaptive_avg_pool2d": lambda x, y: F.adaptive_avg_pool2d(x, 1),
    "avg_pool3d": lambda x, y: F.avg_pool3d(x.view(1, 4, 8, 8), 2),
    "interpolate": lambda x, y: F.interpolate(x, scale_factor=2.0),
    "pad": lambda x, y: F.pad(x, (1, 1)),
    "cross_entropy": lambda x, y: F.cross_entropy(one(x), torch.zeros(8, dtype=torch.long, device=x.device)),
    "nll_loss": lambda x, y: F.nll_loss(one(x), torch.zeros(8, dtype=torch.long, device=x.device)),
    "mse_loss": lambda x, y: F.mse_loss(x, y),
    "l1_loss": lambda x, y: F.l1_loss(x, y),
    "binary_cross_entropy_with_logits": lambda x, y: F.binary_cross_entropy_with_logits(x, y),
    "addcmul": lambda x, y: torch.addcmul(x, y, y),
    "atan2": torch.atan2,
    "tensordot": lambda x, y: torch.tensordot(x, one(y), 1),
    "inner": lambda x, y: torch.inner(one(x), one(y)),
    "bilinear": lambda x, y: F.bilinear(one(x), one(y), y),
    "view": lambda x, y: x.view(4, 64),
    "transpose": lambda x, y: x.mT,
    "select": lambda x, y: x.select(0, 1),
    "bfloat16()": lambda x, y: x.bfloat16(),
}  # fmt: skip
DTYPES = torch.float32, torch.float16, torch.bfloat16, torch.float64


def dtype_of(operator, mode, x, y):
    try:
        with mode:
            return operator(x, y).dtype
    except (RuntimeError, NotImplementedError, ValueError):
        return "error"


@pytest.mark.parametrize("name", OPERATORS)
def test_on_cpu_each_operator_has_torchs_dtype(name):
    worked = 0
    for first in DTYPES:
        for second in DTYPES:
            x, y = torch.rand(4, 8, 8, dtype=first), torch.rand(4, 8, 8, dtype=second)
            theirs = dtype_of(OPERATORS[name], torchs_autocast(), x, y)
            assert dtype_of(OPERATORS[name], autocast(), x, y) == theirs or theirs == "error", (first, second)
            worked += theirs != "error"
    assert worked >= 4


@contextmanager
def torchs_cuda_autocast():
    """Without a GPU ``torch.autocast`` switches itself off; its lists are there all the same."""
    torch.set_autocast_dtype("cuda", torch.float16)
    torch.set_autocast_enabled("cuda", True)
    try:
        yield
    finally:
        torch.set_autocast_enabled("cuda", False)


@pytest.mark.parametrize("name", OPERATORS)
def test_by_cudas_lists_each_operator_has_torchs_dtype(name):
    worked = 0
    with FakeTensorMode():
        for first in DTYPES:
            for second in DTYPES:
                x = torch.empty(4, 8, 8, dtype=first, device="cuda")
                y = torch.empty(4, 8, 8, dtype=second, device="cuda")
                theirs = dtype_of(OPERATORS[name], torchs_cuda_autocast(), x, y)
                ours = dtype_of(OPERATORS[name], autocast("cuda"), x, y)
                assert ours == theirs or theirs == "error", (first, second)
                worked += theirs != "error"
    assert worked >= 4
    assert not torch.is_autocast_enabled("cuda")


def registered(key):
    """The operators for which torch has an autocast kernel, without those that Python never calls by name."""
    every = torch._C._dispatch_get_all_op_names()
    names = {
        n.removeprefix("aten::").split(".")[0] for n in every if torch._C._dispatch_has_kernel_for_dispatch_key(n, key)
    }
    return {name for name in names if not name.startswith(("_", "cudnn_", "mkldnn_", "native_"))}


SAME_AS = {  # torch's operator -> what Python calls
    "cross_entropy_loss": "cross_entropy",
    "nll_loss2d": "nll_loss",
    "multilabel_margin_loss_forward": "multilabel_margin_loss",
    "grid_sampler_2d": "grid_sampler",
    "grid_sampler_3d": "grid_sampler",
    "linalg_cholesky_ex": "linalg_cholesky",
    "linalg_inv_ex": "linalg_inv",
    **{f"upsample_{how}": "interpolate" for how in
       ("nearest1d", "nearest2d", "nearest3d", "linear1d", "bilinear2d", "bicubic2d", "trilinear3d")},
}  # fmt: skip


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_no_operator_of_torchs_lists_is_missing(device):
    known = set(RULES[device])
    # Left out: cells of recurrent networks, padding by reflection and replication, and a trial of quantization.
    left_out = {"lstm_cell", "gru_cell", "rnn_tanh_cell", "rnn_relu_cell", "fake_quantize_per_tensor_affine"}
    left_out |= {f"{kind}_pad{n}d" for kind in ("reflection", "replication") for n in (1, 2, 3)}
    found = {SAME_AS.get(name, name) for name in registered(f"Autocast{device.upper()}")}
    assert found - known - left_out == set()
    assert len(found) > 60


# Models.


class CNN(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv, self.norm = nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8)
        self.layer_norm, self.out = nn.LayerNorm(8), nn.Linear(8, 10)

    def loss(self, x, targets):
        x = F.max_pool2d(F.relu(self.norm(self.conv(x))), 2)
        x = torch.cat([x, x * 2], dim=-1).mean((2, 3))
        x = F.dropout(F.gelu(self.layer_norm(x)), 0.1)
        return F.cross_entropy(self.out(x), targets)


class Dtypes(TorchDispatchMode):
    """Every operator that runs, with the dtypes that it takes and gives."""

    def __init__(self):
        super().__init__()
        self.seen = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        if "_to_copy" not in str(func):
            tensors = [*args, result] if isinstance(result, torch.Tensor) else [*args, *result]
            self.seen.append((str(func), *(each.dtype for each in tensors if isinstance(each, torch.Tensor))))
        return result


def forward_and_backward(model, mode, *inputs):
    torch.manual_seed(0)
    with Dtypes() as dtypes:
        with mode:
            loss = model.loss(*inputs)
        loss.backward()
    gradients = [p.grad for p in model.parameters()]
    model.zero_grad()
    return loss, gradients, dtypes.seen


@pytest.mark.parametrize("which", ["gpt", "cnn"])
def test_a_model_runs_the_operators_of_torchs_autocast_in_their_dtypes_with_their_results(which):
    torch.manual_seed(0)
    model = GPT() if which == "gpt" else CNN()
    inputs = batch(0, 4) if which == "gpt" else (torch.randn(4, 3, 16, 16), torch.arange(4))
    ours = forward_and_backward(model, autocast(), *inputs)
    theirs = forward_and_backward(model, torchs_autocast(), *inputs)
    plain = forward_and_backward(model, nullcontext(), *inputs)
    assert ours[2] == theirs[2] != plain[2]
    assert torch.equal(ours[0], theirs[0]) and not torch.equal(ours[0], plain[0])
    for mine, other in zip(ours[1], theirs[1]):
        assert mine.dtype == FULL
        assert torch.equal(mine, other)


def test_cudas_rules_on_cpu_tensors():
    torch.manual_seed(0)
    model = GPT(GPTConfig(layers=1, heads=2, dim=16))
    with autocast("cuda"):
        hidden = model.blocks[0].mlp(torch.randn(2, 16))
        assert hidden.dtype == torch.float16
        assert model.norm(hidden).dtype == FULL  # on CPU's lists it would stay as it is
        assert hidden.softmax(-1).dtype == FULL
    with autocast("cuda", LOW):
        assert model.blocks[0].mlp(torch.randn(2, 16)).dtype == LOW


# The cache.


class Casts(TorchDispatchMode):
    def __init__(self, weight):
        super().__init__()
        self.weight, self.count = weight, 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.count += "_to_copy" in str(func) and args[0].data_ptr() == self.weight.data_ptr()
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize("cache, expected", [(True, 1), (False, 3)])
def test_a_weight_is_cast_once_while_the_context_lasts(cache, expected):
    layer, x = nn.Linear(4, 4), torch.ones(2, 4)
    for _ in range(2):
        with Casts(layer.weight) as casts, autocast(cache=cache):
            layer(layer(layer(x)))
        assert casts.count == expected


def test_the_gradient_of_a_weight_that_is_used_thrice_is_their_sum_in_fp32():
    layer, x = nn.Linear(4, 4, bias=False), torch.randn(2, 4)
    gradients = []
    for cache in (True, False):
        with autocast(cache=cache):
            loss = layer(layer(layer(x))).sum()
        layer.zero_grad()
        loss.backward()
        gradients.append(layer.weight.grad)
    assert gradients[0].dtype == FULL
    torch.testing.assert_close(*gradients, rtol=2**-6, atol=2**-6)


def test_a_weight_that_changes_inside_is_cast_again():
    layer, x = nn.Linear(4, 4, bias=False), torch.ones(2, 4)
    with autocast():
        layer(x)
        with torch.no_grad():
            layer.weight.zero_()
        assert torch.equal(layer(x), torch.zeros(2, 4, dtype=LOW))


def test_a_cast_without_grad_does_not_cut_the_gradient_off_later():
    layer, x = nn.Linear(4, 4), torch.ones(2, 4)
    with autocast():
        with torch.no_grad():
            layer(x)
        layer(x).sum().backward()
    assert layer.weight.grad is not None and layer.weight.grad.dtype == FULL


def test_casts_are_gone_when_the_context_ends():
    def program():
        layer, x = nn.Linear(100, 100, bias=False), torch.ones(1, 100)
        with torch.no_grad():
            with (mode := autocast()):
                layer(x)
        return layer, mode

    held = list(tinydist.launch(program, 1, backend="simulated").memory[0].over_time())
    assert max(each["other"] for _, each in held) >= 100 * 100 * 2
    assert held[-1][1]["parameters"] == 100 * 100 * 4
    assert held[-1][1]["other"] == held[-1][1]["activations"] == 0


# Contexts.


def test_a_decorator_has_a_context_for_each_call():
    layer = nn.Linear(4, 4)

    @autocast()
    def depth(n):
        """How deep."""
        y = layer(torch.ones(2, 4))
        return y.dtype if n == 0 else depth(n - 1)

    assert depth(3) == LOW and depth.__doc__ == "How deep."
    assert layer(torch.ones(2, 4)).dtype == FULL


def test_the_innermost_context_decides():
    x = torch.ones(2, 2)
    with autocast():
        with autocast(dtype=torch.float16):
            assert (x @ x).dtype == torch.float16
            with autocast(enabled=False):
                assert (x @ x).dtype == FULL
        assert (x @ x).dtype == LOW
        with pytest.raises(KeyError), autocast("cuda"):
            raise KeyError
        assert (x @ x).dtype == LOW
    assert (x @ x).dtype == FULL


def test_what_is_told_its_dtype_or_its_place_does_as_told():
    x = torch.ones(2, 2)
    with autocast("cuda"):
        assert x.sum(dtype=torch.float64).dtype == torch.float64
        assert torch.mm(x, x, out=torch.empty(2, 2)).dtype == FULL
        assert x.half().exp_().dtype == torch.float16
        assert x.clone().addmm_(x, x).dtype == FULL


def test_a_context_for_each_rank():
    def program():
        layer, x = nn.Linear(4, 4), torch.ones(2, 4)
        rank = torch.distributed.get_rank()
        with autocast(enabled=rank % 2 == 0):
            torch.distributed.barrier()  # others run in between
            return layer(x).dtype

    assert tinydist.launch(program, 4, backend="simulated").results == [LOW, FULL, LOW, FULL]


def test_one_context_entered_by_all_ranks_and_again_inside():
    mode = autocast()

    def program():
        layer, x = nn.Linear(4, 4), torch.ones(2, 4)
        with mode:
            torch.distributed.barrier()  # all are inside
            with mode:
                inner = layer(x).dtype
            outer = layer(x).dtype
        torch.distributed.barrier()
        return inner, outer, layer(x).dtype

    assert tinydist.launch(program, 3, backend="simulated").results == [(LOW, LOW, FULL)] * 3


def test_a_checkpoint_computes_again_under_the_autocast_that_it_is_given():
    layer, x = nn.Linear(4, 4), torch.ones(2, 4, requires_grad=True)
    gradients = []
    for run in (lambda: layer(x), lambda: checkpoint(layer, x, use_reentrant=False,
                                                     context_fn=lambda: (nullcontext(), autocast()))):  # fmt: skip
        with autocast():
            y = run()
        layer.zero_grad()
        y.float().square().sum().backward()
        gradients.append(layer.weight.grad)
    assert torch.equal(*gradients)


def test_errors():
    with pytest.raises(ValueError, match="device must be one of 'cpu', 'cuda', got 'tpu'"):
        autocast("tpu")
    with pytest.raises(ValueError, match=r"dtype must be torch\.float16 or torch\.bfloat16, got torch\.float32"):
        autocast(dtype=torch.float32)
    with autocast("cuda"), pytest.raises(RuntimeError, match="use binary_cross_entropy_with_logits"):
        F.binary_cross_entropy(torch.ones(2), torch.ones(2))
    with torchs_cuda_autocast(), FakeTensorMode(), pytest.raises(RuntimeError, match="unsafe to autocast"):
        F.binary_cross_entropy(torch.ones(2, device="cuda"), torch.ones(2, device="cuda"))
