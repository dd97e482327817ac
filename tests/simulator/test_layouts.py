"""Tensors that do not lie in one plain storage: summed as gloo sums them, counted, or refused in words."""

import pytest
import torch
import torch.distributed as dist
from torch import nn

import tinydist

FLOAT, LONG = 4, 8  # bytes


def sparse(rank):
    """Of five numbers, that at ``rank`` and the last."""
    return torch.sparse_coo_tensor([[rank, 4]], [1.0, rank + 1.0], (5,), check_invariants=False)


def sum_of_sparse():
    tensor = sparse(dist.get_rank())
    dist.all_reduce(tensor)
    return tensor.to_dense().tolist()


@pytest.mark.parametrize("observe", [False, True])
def test_sparse_tensors_are_summed(observe):
    assert tinydist.launch(sum_of_sparse, 3, observe=observe).results == [[1, 1, 1, 0, 6]] * 3


def test_gloo_sums_them_alike():
    assert tinydist.launch(sum_of_sparse, 3, backend="gloo").results == [[1, 1, 1, 0, 6]] * 3


def test_a_sum_of_sparse_gradients_can_be_used_in_backward():
    def program():
        tensor = sparse(dist.get_rank())
        dist.all_reduce(tensor)
        weight = torch.ones(5, requires_grad=True)
        (tensor * weight).to_dense().sum().backward()
        return weight.grad.to_dense().tolist()

    assert tinydist.launch(program, 3).results == [[1, 1, 1, 0, 6]] * 3


def test_sparse_gradients_train_as_dense_ones_do():
    def program(is_sparse):
        embedding = nn.Embedding(10, 4, sparse=is_sparse)
        optimizer = torch.optim.SGD(embedding.parameters(), lr=0.1)
        for _ in range(2):
            optimizer.zero_grad()
            embedding(torch.tensor([1, 1, 2 + dist.get_rank()])).sum().backward()
            dist.all_reduce(embedding.weight.grad)
            optimizer.step()
        return embedding.weight.detach()

    torch.testing.assert_close(tinydist.launch(program, 3, True).results, tinydist.launch(program, 3, False).results)


def test_the_ledger_counts_indices_and_values():
    def program():
        kept = sparse(dist.get_rank())
        del kept

    run = tinydist.launch(program, 2)
    assert [memory.peak for memory in run.memory] == [2 * FLOAT + 2 * LONG] * 2


REFUSED = {
    "torch.sparse_csr": lambda: torch.eye(3).to_sparse_csr(),
    "torch._mkldnn": lambda: torch.ones(3).to_mkldnn(),
    "torch.jagged": lambda: torch.nested.nested_tensor([torch.ones(2), torch.ones(3)], layout=torch.jagged),
    "torch.quint8": lambda: torch.quantize_per_tensor(torch.ones(3), 0.1, 0, torch.quint8),
    "meta": lambda: torch.ones(3, device="meta"),
}


@pytest.mark.parametrize("what", REFUSED)
@pytest.mark.filterwarnings("ignore")
def test_others_are_refused(what):
    message = (
        f"all_reduce on rank 0 of .*: the tensors must be dense and have data, or sparse_coo to sum, got .* {what}"
    )
    with pytest.raises(ValueError, match=message):
        tinydist.launch(lambda: dist.all_reduce(REFUSED[what]()), 2)


@pytest.mark.parametrize(
    "call",
    [
        lambda tensor: dist.broadcast(tensor, 0),
        lambda tensor: dist.all_reduce(tensor, dist.ReduceOp.MAX),
        lambda tensor: dist.send(tensor, 1) if dist.get_rank() == 0 else dist.recv(tensor, 0),
        lambda tensor: dist.all_gather([tensor.clone(), tensor.clone()], tensor),
    ],
)
def test_sparse_tensors_are_only_summed(call):
    with pytest.raises(ValueError, match=r"must be dense and have data.*, got one of torch.sparse_coo"):
        tinydist.launch(lambda: call(sparse(dist.get_rank())), 2)


def test_a_sparse_and_a_dense_tensor_have_no_sum():
    with pytest.raises(RuntimeError):
        tinydist.launch(lambda: dist.all_reduce(sparse(0) if dist.get_rank() else torch.ones(5)), 2)
