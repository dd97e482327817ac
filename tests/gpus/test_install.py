"""While ranks run torch.cuda and torch.accelerator answer or refuse, name by name; afterwards torch is what it was."""

import os
import signal
import threading
from types import FunctionType, ModuleType

import pytest
import torch
import torch.distributed as dist
from gpus.on_gpus import on_gpus, refusal, where

import tinydist
from tinydist.gpus.install import ANSWERS

LEFT_ALONE = {  # names of torch that ask no GPU anything
    "Device", "AcceleratorError", "CudaError", "DeferredCudaCallError", "OutOfMemoryError", "cudaStatus", "check_error",
    "DEVICE_REQUIREMENT", "PYTORCH_RELEASES_CODE_CC", "has_half", "has_magma", "default_generators",  # constants
}  # fmt: skip
OLD_TYPES = ("Storage", "Tensor")  # torch.cuda.FloatTensor and others, which torch itself refuses without CUDA


def touched():
    """All places in torch that a launch with pretended GPUs may change."""
    places = [torch, torch.cuda, torch.accelerator, torch.Tensor, torch.UntypedStorage, torch.version, torch.nn.Module]
    places += [module for module, _ in ANSWERS] + [torch.amp.autocast, torch.utils.data.DataLoader, torch.nn.attention]
    places += [dist, dist.distributed_c10d, torch._C, torch._C._nn, torch.storage, torch.cpu, torch.jit]
    return {str(place): dict(vars(place)) for place in places}


def changed(before):
    after = touched()
    return [
        (place, name)
        for place, names in after.items()
        for name in names.keys() | before[place].keys()
        if names.get(name) is not before[place].get(name)
    ]


def fail():
    raise ValueError("of the program")


def wait_for_nobody():
    if dist.get_rank():
        dist.barrier()


def interrupted():
    os.kill(os.getpid(), signal.SIGINT)
    dist.barrier() if dist.get_rank() else dist.recv(torch.ones(1, device="cuda"), 1)


ENDS = {"well": lambda: None, "with an error": fail, "in a deadlock": wait_for_nobody, "interrupted": interrupted}


@pytest.mark.parametrize("end", ENDS)
def test_afterwards_torch_is_what_it_was(end):
    on_gpus(lambda: torch.ones(1, device="cuda"))  # loads what is loaded once
    before, told = touched(), []

    def program():
        told.append(where(torch.ones(1, device="cuda")))
        torch.set_default_device("cuda")
        ENDS[end]()

    try:
        on_gpus(program, 2)
    except (ValueError, tinydist.DeadlockError, KeyboardInterrupt) as error:
        told.append(type(error).__name__)
    assert "cuda:0" in told and (end == "well") == (set(told) == {"cuda:0"})
    assert changed(before) == []
    assert not torch.cuda.is_available() and where(torch.ones(2), torch.tensor([1.0])) == "cpu cpu"
    assert (
        tinydist.launch(lambda: where(torch.tensor([1.0])) + str(torch.cuda.is_available()), 2).results
        == ["cpuFalse"] * 2
    )
    with torch.device("meta"):
        assert where(torch.ones(2), torch.tensor([1.0])) == "meta meta"


def test_gpus_are_for_those_who_ask():
    assert tinydist.launch(torch.cuda.is_available, 1).results == [False]
    with pytest.raises(ValueError, match="gpus=True requires observe=True, which counts their memory, got False"):
        tinydist.launch(fail, 1, gpus=True, observe=False)
    with pytest.raises(ValueError, match="gpus must be True or False, got 2"):
        tinydist.launch(fail, 1, gpus=2)


def public_names(module):
    exported = {*getattr(module, "__all__", ()), *[name for name in vars(module) if not name.startswith("_")]}
    return {name: getattr(module, name, None) for name in exported}


@pytest.mark.parametrize("module", [torch.cuda, torch.accelerator], ids=lambda module: module.__name__)
def test_each_public_name_is_answered_or_refused(module):
    def program():
        kinds = {"answered": set(), "refused": set(), "left": set()}
        for name, value in public_names(module).items():
            home = str(getattr(value, "__module__", "torch"))
            if isinstance(value, ModuleType) or name in LEFT_ALONE or name.endswith(OLD_TYPES):
                continue
            if not home.startswith(("torch.cuda", "torch.accelerator", "tinydist")) or name == "TYPE_CHECKING":
                continue  # imported
            ours = home.startswith("tinydist.gpus")
            kind = "refused" if ours and value.__name__ == "refuse" else "answered" if ours else "left"
            kinds[kind].add(name)
            if kind == "refused":
                words = refusal(value)
                assert words.startswith(f"{module.__name__}.{name} on rank 0: pretended GPUs cannot answer this call")
        return kinds

    kinds = on_gpus(program)
    assert kinds["left"] == set()
    if module is torch.cuda:
        assert len(kinds["answered"]) >= 40 and {"cudart", "CUDAGraph", "memory_snapshot"} <= kinds["refused"]


def test_submodules_refuse_too():
    def program():
        asked = {
            "torch.cuda.memory.memory_snapshot": torch.cuda.memory.memory_snapshot,
            "torch.cuda.graphs.CUDAGraph": torch.cuda.graphs.CUDAGraph,
            "torch.cuda.nvtx.range_start": torch.cuda.nvtx.range_start,
            "torch.cuda.nccl.all_reduce": torch.cuda.nccl.all_reduce,
            "torch.cuda.profiler.start": torch.cuda.profiler.start,
        }
        return {name: refusal(function) for name, function in asked.items()}

    for name, words in on_gpus(program).items():
        assert words.startswith(f"{name} on rank 0: pretended GPUs cannot answer this call")


def test_the_kernels_own_threads_see_no_gpu():
    """A thread of the kernel that uses torch while ranks run: a widget's, say."""
    found, begin, done = [], threading.Event(), threading.Event()

    def of_kernel():
        begin.wait(60)
        x = torch.tensor([1.0, 2.0])
        found.append((where(x, x.to(torch.float64), x.clone()), x.is_cuda, x.numpy().tolist(), repr(x), x.type()))
        done.set()

    def program():
        begin.set()
        assert done.wait(60)

    threading.Thread(target=of_kernel).start()
    on_gpus(program)
    assert found == [("cpu cpu cpu", False, [1, 2], "tensor([1., 2.])", "torch.FloatTensor")]


def test_functions_that_answer_are_functions():
    """Their names in the module are torch's: nothing is added to torch.cuda but what it has."""
    before = set(vars(torch.cuda))
    assert on_gpus(lambda: set(vars(torch.cuda)) - before) == set()
    assert all(isinstance(answers, dict) for _, answers in ANSWERS) and isinstance(refusal, FunctionType)
