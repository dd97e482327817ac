"""What mixes the host and a GPU raises what torch would, in its words."""

import pytest
import torch
import torch.nn.functional as F
from gpus.on_gpus import on_gpus, refusal, where
from torch import nn

SAME = "Expected all tensors to be on the same device, but "
ELEMENTS = SAME + "found at least two devices, cuda:0 and cpu!"


def got(name, method, on="cpu", others="cuda:0"):
    return (
        f"{SAME}got {name} is on {on}, different from other tensors on {others} "
        f"(when checking argument in method wrapper_CUDA_{method})"
    )


def ones(*shape):
    return torch.ones(*shape), torch.ones(*shape, device="cuda")


def set_rows(h, g):
    g[torch.tensor([0])] = h[0]


def step_with_states_on_the_host(h, g):
    parameter = nn.Parameter(h.clone())
    optimizer = torch.optim.AdamW([parameter], foreach=False)
    for tensor in (h, g):
        parameter.data, parameter.grad = tensor.clone(), None
        parameter.grad = tensor.clone()
        optimizer.step()


def indices(*_):
    return torch.tensor([0, 1])


MIXED = {  # (h, g): on the host, on GPU 0, [3, 3] -> the words
    "g + h": (lambda h, g: g + h, ELEMENTS),
    "h + g": (lambda h, g: h + g, ELEMENTS),
    "h * a number of the GPU": (lambda h, g: h * g.sum(), ELEMENTS),
    "in place": (lambda h, g: g.add_(h), ELEMENTS),
    "a number of the host, in place": (lambda h, g: h.sum().add_(g.sum()), ELEMENTS),
    "out": (lambda h, g: torch.add(g, g, out=h), ELEMENTS),
    "where": (lambda h, g: torch.where(g > 0, g, h), ELEMENTS),
    "mse_loss": (lambda h, g: F.mse_loss(g, h), ELEMENTS),
    "kl_div": (lambda h, g: F.kl_div(g, h), ELEMENTS),
    "set rows": (set_rows, ELEMENTS),
    "the other GPU": (lambda h, g: g + h.to(1), SAME + "found at least two devices, cuda:0 and cuda:1!"),
    "optimizer": (step_with_states_on_the_host, SAME),
    "g @ h": (lambda h, g: g @ h, got("mat2", "mm")),
    "h @ g": (lambda h, g: h @ g, got("mat2", "mm", "cuda:0", "cpu")),
    "einsum": (lambda h, g: torch.einsum("ij,jk->ik", g, h), got("mat2", "bmm")),
    "linear, host input": (lambda h, g: nn.Linear(3, 3).cuda()(h), got("mat1", "addmm")),
    "linear, GPU input": (lambda h, g: nn.Linear(3, 3)(g), got("mat1", "addmm", "cuda:0", "cpu")),
    "cat": (lambda h, g: torch.cat([g, h]), got("tensors", "cat")),
    "embedding": (lambda h, g: nn.Embedding(4, 2).cuda()(indices()), got("index", "_index_select")),
    "index_select": (lambda h, g: g.index_select(0, indices()), got("index", "_index_select")),
    "gather": (lambda h, g: g.gather(0, torch.zeros(1, 3, dtype=torch.long)), got("index", "gather")),
    "cross_entropy": (lambda h, g: F.cross_entropy(g[:2], indices()), got("target", "nll_loss_forward")),
    "layer_norm": (lambda h, g: nn.LayerNorm(3).cuda()(h), got("weight", "_native_layer_norm", "cuda:0", "cpu")),
    "convolution": (
        lambda h, g: F.conv2d(g[None, None], h[None, None]),
        "Input type (torch.cuda.FloatTensor) and weight type (torch.FloatTensor) should be the same",
    ),
    "attention": (
        lambda h, g: F.scaled_dot_product_attention(g[None, None], h[None, None], g[None, None]),
        "Expected query, key, and value to have the same device type, but got "
        "query.device: cuda:0 key.device: cpu and value.device: cuda:0 instead.",
    ),
    "masked_fill": (
        lambda h, g: g.masked_fill(h > 0, 1.0),
        "expected self and mask to be on the same device, but got mask on cpu and self on cuda:0",
    ),
    "LSTM": (
        lambda h, g: nn.LSTM(3, 3).cuda()(h),
        "Input and parameter tensors are not at the same device, "
        "found input tensor at cpu and parameter tensor at cuda:0",
    ),
    "index of the GPU": (
        lambda h, g: h[indices().cuda()],
        "indices should be either on cpu or on the same device as the indexed tensor (cpu)",
    ),
}


@pytest.mark.parametrize("name", MIXED)
def test_mixing_raises_torchs_words(name):
    function, words = MIXED[name]

    said = on_gpus(lambda: refusal(function, *ones(3, 3)))
    assert said.startswith(words) if words == SAME else said == words


TAKEN = {
    "a number of the host": lambda h, g: g * h.sum(),
    "a number first": lambda h, g: h.sum() * g,
    "where": lambda h, g: torch.where(g > 0, g, h.sum()),
    "in place": lambda h, g: g.mul_(h.sum()),
    "a Python number": lambda h, g: 2 / g,
    "index": lambda h, g: g[indices()],
    "a list": lambda h, g: g[[0, 1]],
    "a mask of the host": lambda h, g: g[h > 0],
    "set a number": lambda h, g: g.index_put_((indices(),), h.sum()),
    "copy": lambda h, g: g.copy_(h),
    "numbers of both": lambda h, g: h.sum() + g.sum(),
    "masked_fill": lambda h, g: g.masked_fill(g > 0, h.sum()),
}


@pytest.mark.parametrize("name", TAKEN)
def test_numbers_and_indices_of_the_host_are_taken(name):
    assert on_gpus(lambda: where(TAKEN[name](*ones(3, 3)))) == "cuda:0"


def test_what_was_refused_changes_nothing():
    def program():
        h, g = ones(2)
        refusal(g.add_, h)
        refusal(h.add_, g)
        return h.tolist(), g.tolist()

    assert on_gpus(program) == ([1, 1], [1, 1])


def test_the_rank_is_named():
    with pytest.raises(RuntimeError, match="found at least two devices") as error:
        on_gpus(lambda: torch.ones(1, 2, device="cuda") + torch.ones(1, 2), ranks=2)
    assert error.value.__notes__ == ["on rank 0 of 2"]
