"""NCCL's rules, on simulated ranks with GPUs."""

import os

import pytest
import torch
import torch.distributed as dist
from gpus.on_gpus import on_gpus, refusal, where

import tinydist


def my_gpu():
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    return torch.device("cuda", torch.cuda.current_device())


def on_backend(backend, program):
    def on_rank():
        dist.init_process_group(backend)
        return program()

    return tinydist.launch(on_rank, 2, gpus=True, init=False).results


def test_nccl_takes_no_tensors_of_the_host():
    def program():
        my_gpu()
        return refusal(dist.all_reduce, torch.ones(2))

    words = (
        "No backend type associated with device type cpu\nall_reduce on rank 0: the group's backend, nccl, takes "
        'tensors on cuda; move them, or call init_process_group("cpu:gloo,cuda:nccl")'
    )
    assert on_backend("nccl", program)[0] == words


@pytest.mark.parametrize("backend", ["cpu:gloo,cuda:nccl", None, "gloo"])
def test_groups_for_both(backend):
    def program():
        tensors = torch.ones(2), torch.ones(2, device=my_gpu())
        for tensor in tensors:
            dist.all_reduce(tensor)
        return where(*tensors), tensors[0].tolist(), tensors[1].tolist()

    assert on_backend(backend, program)[1] == ("cpu cuda:1", [2, 2], [2, 2])


def test_two_ranks_on_one_gpu():
    def program():
        dist.all_reduce(torch.ones(2, device="cuda"))

    with pytest.raises(dist.DistBackendError) as error:
        on_backend("nccl", program)
    assert str(error.value) == (
        "NCCL error: invalid usage\nDuplicate GPU detected : rank 1 and rank 0 both on CUDA device 0\nall_reduce: "
        "each rank needs a GPU of its own; call torch.cuda.set_device(LOCAL_RANK) first"
    )


@pytest.mark.parametrize("op", ["BAND", "BOR", "BXOR"])
def test_reductions_that_nccl_lacks(op):
    def program():
        x = torch.ones(2, dtype=torch.int32, device=my_gpu())
        return refusal(dist.all_reduce, x, getattr(dist.ReduceOp, op))

    assert on_backend("nccl", program)[0] == f"Cannot use ReduceOp.{op} with NCCL"


def test_objects():
    """Tensors in them keep their GPU: that of the rank which sent them."""

    def program():
        gpu, rank = my_gpu(), dist.get_rank()
        gathered, sent = [None] * 2, [{"from": rank}]
        dist.all_gather_object(gathered, {"x": torch.full((2,), rank, device=gpu), "h": torch.ones(1)})
        dist.broadcast_object_list(sent, 0)
        return [where(each["x"], each["h"]) for each in gathered], sent

    assert on_backend("nccl", program) == [(["cuda:0 cpu", "cuda:1 cpu"], [{"from": 0}])] * 2


def test_collectives_leave_results_on_the_gpu():
    def program():
        gpu = my_gpu()
        x, parts, whole = (
            torch.ones(2, device=gpu),
            [torch.zeros(2, device=gpu) for _ in range(2)],
            torch.zeros(4, device=gpu),
        )
        dist.all_gather(parts, x)
        dist.all_gather_into_tensor(whole, x)
        dist.reduce_scatter_tensor(x, whole)
        dist.barrier()
        work = dist.all_reduce(x, async_op=True)
        work.wait()
        return where(x, *parts, whole), x.tolist()

    assert on_backend("nccl", program)[1] == ("cuda:1 cuda:1 cuda:1 cuda:1", [4, 4])


def test_nccl_is_there():
    def program():
        return dist.is_nccl_available(), torch.cuda.nccl.version() >= (2, 0), dist.get_backend()

    assert on_gpus(program) == (True, True, "simulated")
    assert on_backend("nccl", lambda: dist.get_backend()) == ["nccl", "nccl"]
