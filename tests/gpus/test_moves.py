"""Where new tensors are, and each way to move one."""

import copy
import pickle
import warnings

import numpy
import pytest
import torch
from gpus.on_gpus import on_gpus, where
from torch import nn

FACTORIES = {
    "zeros": (2,),
    "ones": (2,),
    "empty": (2,),
    "rand": (2,),
    "randn": (2,),
    "arange": (3,),
    "linspace": (0, 1, 3),
    "eye": (3,),
    "full": ((2,), 1.0),
    "randint": (0, 5, (2,)),
    "randperm": (5,),
    "tril_indices": (3, 3),
    "empty_strided": ((2,), (1,)),
    "scalar_tensor": (2.0,),
    "hann_window": (3,),
    "tensor": ([1.0],),
    "as_tensor": ([1.0],),
    "asarray": ([1.0],),
}
LIKE = {
    "zeros_like": (),
    "ones_like": (),
    "empty_like": (),
    "rand_like": (),
    "randn_like": (),
    "full_like": (2.0,),
    "randint_like": (5,),
}
NEW = {"new_zeros": (2,), "new_ones": (2,), "new_empty": (2,), "new_full": ((2,), 1.0), "new_tensor": ([1.0],)}
MOVES = {  # from the host to GPU 0
    "to cuda": lambda x: x.to("cuda"),
    "to 0": lambda x: x.to(0),
    "to cuda:0": lambda x: x.to("cuda:0", non_blocking=True),
    "to torch.device": lambda x: x.to(torch.device("cuda", 0)),
    "to device=": lambda x: x.to(device="cuda"),
    "to device and dtype": lambda x: x.to("cuda", torch.float32),
    "to dtype= and device=": lambda x: x.to(dtype=torch.float32, device="cuda"),
    "to another": lambda x: x.to(torch.ones(1, device="cuda")),
    "to other=": lambda x: x.to(other=torch.ones(1, device="cuda")),
    "cuda": lambda x: x.cuda(),
    "cuda 0": lambda x: x.cuda(0, non_blocking=True),
    "type": lambda x: x.type("torch.cuda.FloatTensor"),
    "type_as": lambda x: x.type_as(torch.ones(1, device="cuda")),
    "as_tensor": lambda x: torch.as_tensor(x, device="cuda"),
    "asarray": lambda x: torch.asarray(x, device="cuda"),
    "copy_": lambda x: torch.empty(3, device="cuda").copy_(x),
    "new_tensor": lambda x: torch.ones(1, device="cuda").new_tensor(x.tolist()),
    "storage": lambda x: torch.tensor([], device="cuda").set_(x.untyped_storage().cuda(0), 0, (3,)),
}


@pytest.mark.parametrize("name", FACTORIES)
def test_what_is_made_is_where_the_program_says(name):
    def program():
        make, args = getattr(torch, name), FACTORIES[name]
        named = [make(*args, device=device) for device in (0, "cuda", "cuda:1", torch.device("cuda", 1), "cpu", None)]
        with torch.device("cuda:1"):
            inside = make(*args), make(*args, device="cpu")
        torch.set_default_device("cuda")
        default = make(*args)
        torch.set_default_device(None)
        return where(*named), where(*inside), where(default, make(*args))

    named, inside, default = on_gpus(program)
    assert named == "cuda:0 cuda:0 cuda:1 cuda:1 cpu cpu"
    assert inside == "cuda:1 cpu" and default == "cuda:0 cpu"


@pytest.mark.parametrize("name", LIKE | NEW)
def test_what_is_made_like_another_is_where_that_one_is(name):
    def program():
        def make(tensor, **how):
            function = getattr(tensor, name, None) or (lambda *args, **how: getattr(torch, name)(tensor, *args, **how))
            return function(*(LIKE | NEW)[name], **how)

        host, gpu = torch.ones(2), torch.ones(2, device="cuda:1")
        return where(make(host), make(gpu), make(gpu, device="cpu"), make(host, device="cuda"))

    assert on_gpus(program) == "cpu cuda:1 cpu cuda:0"


@pytest.mark.parametrize("name", MOVES)
def test_moves_to_a_gpu_and_back(name):
    def program():
        host = torch.arange(3.0)
        gpu = MOVES[name](host)
        asks = gpu.is_cuda, gpu.is_cpu, gpu.get_device(), gpu.type(), host.is_cuda, host.is_cpu, host.get_device()
        back = gpu.cpu(), gpu.to("cpu"), gpu.to(host), gpu.type_as(host), torch.as_tensor(gpu, device="cpu")
        return where(host, gpu), asks, where(*back), gpu.tolist(), [each.tolist() for each in back]

    places, asks, back, values, there_and_back = on_gpus(program)
    assert places == "cpu cuda:0" and back == "cpu cpu cpu cpu cpu"
    assert asks == (True, False, 0, "torch.cuda.FloatTensor", False, True, -1)
    assert [values, *there_and_back] == [[0, 1, 2]] * 6


def test_what_is_there_already_is_the_same_tensor():
    def program():
        x, h = torch.ones(3, device="cuda"), torch.ones(3)
        assert x.to("cuda") is x.to(0) is x.cuda() is x.to("cuda", non_blocking=True) is x.to(torch.float32) is x
        assert torch.as_tensor(x) is torch.as_tensor(x, device="cuda") is x
        assert h.cpu() is h.to("cpu") is h
        copies = x.to("cuda", copy=True), x.to(torch.float64), x.double(), x.half(), x.bfloat16(), x.clone()
        assert all(each is not x for each in copies)
        return where(*copies)

    assert on_gpus(program) == " ".join(["cuda:0"] * 6)


def test_between_gpus():
    def program():
        x = torch.ones(3, device="cuda:0", requires_grad=True)
        y = x.to("cuda:1")
        with torch.cuda.device(1):
            z = x.cuda()
        (y + z).sum().backward()
        return where(x, y, z, x.grad)

    assert on_gpus(program) == "cuda:0 cuda:1 cuda:1 cuda:0"


def test_in_place():
    def program():
        x, h = torch.zeros(3, device="cuda"), torch.zeros(3)
        x += 1
        x[0], x[1:] = 5, torch.tensor([1.0, 2.0])  # a slice is copied to
        h.copy_(x)
        x.resize_(4)
        x.data = torch.ones(2, device="cuda")
        h.data = torch.ones(2, device="cuda")
        return h.tolist(), where(x, h, x.normal_(), x.set_(torch.ones(3, device="cuda")))

    assert on_gpus(program)[1] == "cuda:0 cuda:0 cuda:0 cuda:0"


def test_a_copy_of_data():
    def program():
        x = torch.ones(2, device="cuda")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            made = torch.tensor(x), torch.tensor(x, device="cpu")
        leaf = torch.tensor([1.0], device="cuda", requires_grad=True)
        assert leaf.is_leaf and leaf.requires_grad
        from_host = (
            torch.from_numpy(numpy.ones(3)).cuda(),
            torch.frombuffer(bytearray(8), dtype=torch.float32).to("cuda"),
        )
        copies = (
            copy.copy(x),
            copy.deepcopy(x),
            pickle.loads(pickle.dumps(x)),
            copy.deepcopy(nn.Linear(2, 2).cuda()).weight,
        )
        return where(*made), where(*from_host), where(*copies), str(x.untyped_storage().device)

    assert on_gpus(program) == ("cuda:0 cpu", "cuda:0 cuda:0", "cuda:0 cuda:0 cuda:0 cuda:0", "cuda:0")
