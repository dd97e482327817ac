"""Fake tensors: shapes without data, for programs that are executed (not traced)."""

from contextlib import contextmanager

import torch
from torch._subclasses import DynamicOutputShapeException, FakeTensor, FakeTensorMode
from torch._subclasses.fake_tensor import DataDependentOutputException, in_kernel_invocation_manager
from torch.distributed import _functional_collectives as functional
from torch.distributed import _mesh_layout, device_mesh
from torch.optim import optimizer
from torch.utils import _foreach_utils

from .autograd import called_from

MESHES = {device_mesh.__file__, _mesh_layout.__file__}
COLLECTIVES = {"_c10d_functional", "_dtensor"}  # operators that call a process group
ON_ANY_DEVICE, META = torch._C.DispatchKey.CompositeExplicitAutograd, torch._C.DispatchKey.Meta

ASKS_DEVICE = torch.ops.prim.device.default
VALUES = {int, float, bool, type(None), torch.dtype}  # arguments that say all of themselves

aten = torch.ops.aten
INTO = {aten.add.out, aten.mul.out}  # they leave the tensor that they write into as it is, if all are alike
VIEWS = {aten.select.int, aten.slice.Tensor, aten.split.Tensor, aten.squeeze.dim, aten.transpose.int, aten.unbind.int}
VIEWS |= {each.default for each in (aten._unsafe_view, aten.alias, aten.detach, aten.expand, aten.permute)}
VIEWS |= {aten.t.default, aten.unsqueeze.default}
VIEWS = dict.fromkeys(VIEWS, ON_ANY_DEVICE) | {aten.view.default: META}  # operator -> the kernel that looks at shapes
NATIVE = (
    "native code reads the values of a tensor, but tensors have none with fake=True. torch's DistributedDataParallel "
    "does: tinydist.data_parallel.DDP does not, nor does torch's with launch(..., fake=True, gpus=True)"
)


class FakeTensors(FakeTensorMode):
    """Tensors that have no data, for programs that run: torch's own mode is made to trace programs."""

    def __init__(self):
        super().__init__(allow_non_fake_inputs=True)

    def __exit__(self, kind, error, traceback):
        if kind is RuntimeError and "its data is not allocated yet" in str(error):
            error.add_note(NATIVE)
        return super().__exit__(kind, error, traceback)

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        if func is ASKS_DEVICE:
            return torch.device("meta") if self.in_kernel_invocation else args[0].fake_device
        if FakeTensor not in types and called_from(MESHES):
            return func(*args, **kwargs)  # which ranks make up a mesh is read from tensors: these have data
        if func.namespace in COLLECTIVES:
            with self:  # what it does on a device, in the place of its shapes alone
                return func._op_dk(ON_ANY_DEVICE, *args, **kwargs)
        if func in INTO and self._alike(*args, kwargs["out"]):
            return kwargs["out"]
        if func in VIEWS and not kwargs and self._is_plain(args[0]):
            return self._view(func, args)
        try:
            return super().__torch_dispatch__(func, types, args, kwargs)
        except (DataDependentOutputException, DynamicOutputShapeException):
            reads = "needs the values of a tensor, but tensors have none with fake=True"
            raise RuntimeError(f"{func.name()} {reads}") from None

    def forget(self, tensors):
        """The number in a tensor that was made from it is known: no longer, where other ranks have written to it."""
        for tensor in tensors:
            if isinstance(tensor, FakeTensor) and tensor.constant is not None:
                self.fake_tensor_converter.invalidate_constant_aliases(tensor.constant)

    # What programs do most, torch's mode takes long to find out.

    def _is_plain(self, tensor):
        its_own = type(tensor) is FakeTensor and tensor.fake_mode is self
        return its_own and tensor.constant is None and tensor.layout is torch.strided

    def _alike(self, *tensors):
        kinds = [self._is_plain(each) and (each.shape, each.dtype, each.fake_device) for each in tensors]
        return kinds[0] and kinds.count(kinds[0]) == len(kinds)

    def _view(self, func, args):
        with in_kernel_invocation_manager(self):
            seen = func._op_dk(VIEWS[func], *args)
        device = args[0].fake_device
        single = isinstance(seen, torch.Tensor)
        return FakeTensor(self, seen, device) if single else [FakeTensor(self, each, device) for each in seen]

    def _prep_args_for_hash(self, result, args, *more):
        """By what the cache knows arguments. A tensor's format in memory, for one, follows from its strides."""
        if isinstance(args, dict):
            return super()._prep_args_for_hash(result, args, *more)
        result.append(len(args))
        for each in args:
            if self._is_plain(each):
                result.append(facts_of(each))
            elif type(each) in VALUES:  # 1 equals 1.0, but not all that comes of it does
                result += type(each), each
            else:
                super()._prep_args_for_hash(result, [each], *more)

    def _cached_dispatch_impl(self, func, types, args, kwargs):
        """The cache makes a view by ``set_``, which lets storage grow that was freed: such views are created again."""
        freed = func.is_view and args[0].nbytes > args[0].untyped_storage().nbytes()
        return (self._dispatch_impl if freed else super()._cached_dispatch_impl)(func, types, args, kwargs)


def facts_of(tensor):
    facts = tensor.dtype, tensor.shape, tensor.stride(), tensor.storage_offset(), tensor.untyped_storage().nbytes()
    return facts, tensor.fake_device, tensor.requires_grad, tensor.is_conj(), tensor.is_neg(), tensor.is_inference()


@contextmanager
def fake_as_real():
    """torch does with fake tensors what it does with others."""
    tracing, swap = functional._are_we_tracing.__code__, torch.utils.swap_tensors
    functional._are_we_tracing.__code__ = (lambda: False).__code__  # many modules have it under a name of their own
    torch.utils.swap_tensors = lambda old, new: (take if isinstance(old, FakeTensor) else swap)(old, new)
    guard = torch._C._ensureCUDADeviceGuardSet
    guard()  # in a build with CUDA, without a device: it ends with its thread, and this one outlives those of the ranks
    torch._C._ensureCUDADeviceGuardSet = lambda: None
    try:
        yield
    finally:
        functional._are_we_tracing.__code__, torch.utils.swap_tensors = tracing, swap
        torch._C._ensureCUDADeviceGuardSet = guard


@contextmanager
def fake_tensors_in_foreach():
    """Optimizers update fake tensors as they do real ones on a GPU, many at once."""
    types = optimizer._foreach_supported_types, _foreach_utils._foreach_supported_types
    for each in types:
        each.append(FakeTensor)
    try:
        yield
    finally:
        for each in types:
            each.remove(FakeTensor)


def take(tensor, other):
    """``tensor`` becomes ``other``. A swap fails where anything watches one of the two, and loses the hooks."""
    tensor.data, tensor.fake_device = other, other.fake_device
