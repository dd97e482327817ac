"""What tensors say of their device, and each way to move one."""

import copy
import pickle
import threading
import warnings

import numpy
import pytest
import torch
from gpus.on_gpus import on_gpus, refusal, where
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


def test_views_and_results_are_where_their_operands_are():
    def program():
        x = torch.arange(6.0, device="cuda").view(2, 3)
        views = (
            x[0],
            x.T,
            x[None, ..., 0],
            x.reshape(6),
            x.unbind()[0],
            x.split(1)[0],
            x.detach(),
            x.data,
            x.expand(4, 2, 3),
        )
        results = (
            x * 2,
            2 / x,
            x @ x.T,
            x.sum(),
            x > 1,
            x.max(0)[0],
            x.contiguous(),
            torch.fft.fft(x),
            torch.cat([x, x]),
        )
        z = torch.ones(2, dtype=torch.complex64, device="cuda")
        return where(*views, *results, z.real, z.imag, torch.view_as_real(z), z.abs())

    assert set(on_gpus(program).split()) == {"cuda:0"}


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


def test_gradients_are_where_their_tensors_are():
    """Those that C++ makes in backward, too."""
    through = {
        "move": lambda p: p.cpu(),
        "dtype": lambda p: p.to(torch.float64),
        "slice": lambda p: p[1:],
        "index": lambda p: p[torch.tensor([0, 1])],
        "index_select": lambda p: p.index_select(0, torch.tensor([0], device="cuda")),
        "gather": lambda p: p.gather(0, torch.zeros(1, 3, dtype=torch.long, device="cuda")),
        "expand": lambda p: p.expand(2, 4, 3),
        "unbind": lambda p: p.unbind()[0],
        "split": lambda p: p.split(2)[0],
        "diagonal": lambda p: p.diagonal(),
        "max": lambda p: p.max(0)[0],
        "sort": lambda p: p.sort(0)[0],
        "cumsum": lambda p: p.cumsum(0),
        "prod": lambda p: p.prod(),
        "embedding": lambda p: nn.functional.embedding(torch.tensor([1], device="cuda"), p),
        "sparse": lambda p: nn.functional.embedding(torch.tensor([1], device="cuda"), p, sparse=True),
    }

    def program():
        found = {}
        for name, function in through.items():
            p = torch.ones(4, 3, device="cuda", requires_grad=True)
            function(p).sum().backward()
            found[name] = where(p.grad)
        host, unused = torch.ones(3, requires_grad=True), torch.ones(2, device="cuda", requires_grad=True)
        (host.cuda() * 2).sum().backward()
        used = torch.ones(2, device="cuda", requires_grad=True)
        grads = torch.autograd.grad(used.sum(), [used, unused], allow_unused=True, materialize_grads=True)
        return found, where(host.grad, *grads)

    found, others = on_gpus(program)
    assert found == dict.fromkeys(through, "cuda:0") and others == "cpu cuda:0 cuda:0"


def test_gradients_in_functions_and_hooks():
    seen = []

    class Twice(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x, y):
            return x * 2, y * 2

        @staticmethod
        def backward(ctx, gx, gy):  # of the second, torch makes zeros
            seen.append(where(gx, gy))
            return gx * 2, gy * 2

    def program():
        x, y = (torch.ones(3, device="cuda", requires_grad=True) for _ in range(2))
        x.register_hook(lambda grad: seen.append(where(grad)))
        x.register_post_accumulate_grad_hook(lambda x: seen.append(where(x.grad)))
        Twice.apply(x, y)[0].sum().backward()
        return where(x.grad, y.grad)

    assert on_gpus(program) == "cuda:0 cuda:0"
    assert seen == ["cuda:0 cuda:0", "cuda:0", "cuda:0"]


@pytest.mark.parametrize(
    "move",
    [
        lambda m: m.to(0),
        lambda m: m.cuda(),
        lambda m: m.to("cuda"),
        lambda m: m.to(torch.cuda.current_device()),
        lambda m: m.to(device="cuda", dtype=torch.float64),
        lambda m: m.to(torch.ones(1, device="cuda")),
    ],
)
def test_modules(move):
    def program():
        model = nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2))
        model.add_module("tied", nn.Linear(2, 2))
        model.tied.weight = model[0].weight
        before = list(model.parameters())
        assert move(model) is model and model.tied.weight is model[0].weight
        assert all(one is other and one.is_leaf for one, other in zip(before, model.parameters(), strict=True))
        there = {where(each) for each in (*model.parameters(), *model.buffers())}
        return there, {where(each) for each in (*model.cpu().parameters(), *model.buffers())}

    assert on_gpus(program) == ({"cuda:0"}, {"cpu"})


def test_modules_that_are_made_on_a_gpu():
    def program():
        with torch.device("meta"):
            empty = nn.Linear(2, 2)
        with torch.device("cuda"):
            inside = nn.Linear(2, 2)
        made = nn.Linear(2, 2, device="cuda"), empty.to_empty(device="cuda"), inside
        return where(*[each.weight for each in made], nn.Parameter(torch.ones(2, device="cuda")))

    assert on_gpus(program) == "cuda:0 cuda:0 cuda:0 cuda:0"


def test_repr():
    def program():
        return repr(torch.ones(2, device="cuda")), repr(torch.ones(2)), repr(nn.Parameter(torch.ones(1, device="cuda")))

    gpu, host, parameter = on_gpus(program)
    assert (gpu, host) == ("tensor([1., 1.], device='cuda:0')", "tensor([1., 1.])")
    assert parameter == "Parameter containing:\ntensor([1.], device='cuda:0', requires_grad=True)"


def test_numpy_takes_tensors_of_the_host_only():
    def program():
        x = torch.ones(2, device="cuda")
        assert x.numpy(force=True).tolist() == [1, 1]
        return refusal(x.numpy), refusal(numpy.asarray, x)

    words = (
        "can't convert cuda:0 device type tensor to numpy. Use Tensor.cpu() to copy the tensor to host memory first."
    )
    assert on_gpus(program) == (words, words)


def test_pinned_memory():
    def program():
        made, moved = torch.empty(3, pin_memory=True), torch.ones(3).pin_memory()
        assert made.is_pinned() and moved.is_pinned() and not torch.ones(3).is_pinned()
        return where(made, moved, moved.cuda(non_blocking=True)), refusal(torch.ones(2, device="cuda").pin_memory)

    assert on_gpus(program) == (
        "cpu cpu cuda:0",
        "cannot pin 'torch.cuda.FloatTensor' only dense CPU tensors can be pinned",
    )


def test_sparse_tensors():
    def program():
        indices, values = torch.tensor([[0, 1], [1, 0]]), torch.ones(2)
        moved = torch.sparse_coo_tensor(indices, values, (2, 2)).cuda()
        made = torch.sparse_coo_tensor(indices.cuda(), values.cuda(), (2, 2))
        whole = moved.coalesce()
        return where(
            moved, made, moved.to_dense(), whole.values(), moved @ torch.ones(2, 2, device="cuda"), moved.cpu()
        )

    assert on_gpus(program) == "cuda:0 cuda:0 cuda:0 cuda:0 cuda:0 cpu"


@pytest.mark.xfail(reason="the device of a nested tensor is that of its Python class, which C++ is told is the host")
def test_nested_tensors():
    def program():
        parts = [torch.ones(2, 3), torch.ones(1, 3)]
        return where(torch.nested.nested_tensor(parts, device="cuda", layout=torch.jagged))

    assert on_gpus(program) == "cuda:0"


@pytest.mark.xfail(reason="C++ compares the device of a gradient that is assigned")
def test_a_gradient_of_the_host_is_refused():
    def program():
        torch.nn.Parameter(torch.ones(3, device="cuda")).grad = torch.ones(3)

    with pytest.raises(RuntimeError, match="assigned grad has data located on a different device"):
        on_gpus(program)


def test_a_subclass_keeps_its_type():
    class Image(torch.Tensor):
        pass

    def program():
        moved = torch.ones(2).as_subclass(Image).to("cuda")
        return type(moved).__name__, where(moved)

    assert on_gpus(program) == ("Image", "cuda:0")


def test_functions_of_torch():
    def program():
        w = torch.ones(3, device="cuda")
        found = (
            torch.func.grad(lambda w: (w**2).sum())(w),
            torch.vmap(lambda a: a * 2)(w),
            torch.func.jacrev(torch.sin)(w),
        )
        with torch.inference_mode():
            return where(*found, torch.ones(2, device="cuda") * 2)

    assert on_gpus(program) == "cuda:0 cuda:0 cuda:0 cuda:0"


def test_a_thread_that_a_rank_starts_has_its_gpus():
    """Libraries load weights in them."""
    told = []

    def help():
        x = torch.ones(2).cuda()
        told.append(
            [str(x.device), str((x + 1).device), torch.cuda.current_device(), refusal(lambda: x + torch.ones(2))]
        )

    def program():
        torch.cuda.set_device(1)
        thread = threading.Thread(target=help)
        thread.start()
        thread.join()

    on_gpus(program)
    words = "Expected all tensors to be on the same device, but found at least two devices, cuda:1 and cpu!"
    assert told == [["cuda:1", "cuda:1", 1, words]]
