"""Checks that the installed torch has all private APIs that are used; the error says which torch to install."""

import torch
import torch.distributed.distributed_c10d as c10d
import torch.distributed.nn.functional  # here, since it binds the default group of the moment when it is imported
from torch import nn, overrides
from torch._C import _distributed_c10d as native
from torch._subclasses import FakeTensorMode, fake_tensor
from torch.autograd import profiler
from torch.distributed import _functional_collectives as functional
from torch.distributed import c10d_logger
from torch.utils import _device as default_devices

from ..torch_versions import INSTALL

NEEDED = (
    (c10d, ("_World", "_world", "_backend", "_default_pg_init_method", "rendezvous", "_new_process_group_helper")),
    (c10d, ("_register_process_group", "_unregister_all_process_groups", "_get_object_coll_device")),
    (c10d, ("_find_pg_by_ranks_and_tag", "_get_default_timeout")),
    (torch.distributed.Reducer, ("_rebuild_buckets",)),
    (c10d_logger, ("_get_msg_dict",)),
    (native, ("_set_thread_isolation_mode",)),
    (torch._C, ("_DisableTorchDispatch", "_current_autograd_node", "_current_graph_task_id")),
    (torch._C, ("_dispatch_tls_is_dispatch_key_excluded", "_len_torch_dispatch_stack")),
    (torch._C, ("_ensureCUDADeviceGuardSet", "_get_accelerator")),
    (torch._C._nn, ("_parse_to",)),
    (torch._C._functorch, ("get_unwrapped",)),
    (torch.Tensor, ("_make_wrapper_subclass",)),
    (overrides, ("_get_current_function_mode_stack",)),
    (default_devices, ("DeviceContext", "_device_constructors")),
    (torch._C._autograd, ("_get_sequence_nr",)),
    (torch.autograd.graph.Node, ("_sequence_nr",)),
    (torch, ("_foreach_copy_", "_amp_foreach_non_finite_check_and_unscale_")),
    (nn.Module, ("_apply", "_call_impl")),
    (FakeTensorMode, ("_cached_dispatch_impl", "_dispatch_impl", "_prep_args_for_hash")),
    (fake_tensor, ("in_kernel_invocation_manager",)),
    (torch.ops._c10d_functional.all_reduce.default, ("_op_dk",)),
    (functional, ("_are_we_tracing",)),
    (profiler, ("_prepare_profiler", "_enable_profiler", "_disable_profiler", "ProfilerConfig")),
    (profiler, ("_is_profiler_enabled",)),
    (torch._C._autograd, ("_enable_record_function",)),
    (torch.ops.profiler, ("_record_function_enter_new", "_record_function_exit")),
    (torch.autograd.Variable._execution_engine, ("queue_callback",)),
)
missing = [name for home, names in NEEDED for name in names if not hasattr(home, name)]
if missing:
    raise ImportError(
        f"simulated ranks need names of torch that torch {torch.__version__} does not have: {', '.join(missing)}. "
        + INSTALL
    )
