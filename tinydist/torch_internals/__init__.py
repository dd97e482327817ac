"""Every private torch API that tinydist uses, and why. No file outside of this package uses one.

Written for torch 2.13. What differs in the others of torch_versions.py, and how one program suits them all:

- 2.12 has ``all_gather_single`` and ``reduce_scatter_single`` under older names: they get the new ones here.
- 2.12 has no ``new_group`` of a group's own to call, and what the later ones pass to it differs. A simulated group
  has none: then all of them make groups with ``_new_process_group_helper``, which is replaced.
- 2.14 on asks a group for the backend of a device before a batch of messages: a simulated group is its own.
- 2.15 runs a schedule of a pipeline only if there is a wait for each send: pipeline_parallel/torch_csv.py writes it.
- 2.15 has ``_pg_flight_recorder_hooks`` in its world: a rank's world lets torch's own make what is not global.
"""

from . import needed  # noqa: F401, first
from .accelerators import (
    accelerator,
    compiled_as,
    declaration_of,
    default_device,
    dtensors_draw_under,
    inside_of,
    modes_unseen,
    parse_to_arguments,
    reducer_allocating,
    untyped,
)
from .autograd import (
    before_backward_ends,
    c10d_calls,
    checkpoint_runs,
    conversions_told,
    copy_all,
    dispatch_is_seen,
    graph_task,
    in_backward,
    load_for_modes,
    module_calls_told,
    multiply_and_check,
    native_code_calls,
    native_code_will_wait,
    node_running,
    nodes_made,
    number_of,
    own_parameters,
    unobserved,
)
from .fake_tensors import FakeTensors, fake_as_real, fake_tensors_in_foreach
from .groups import (
    RankWorld,
    chosen_timeout,
    device_of_group,
    excepthook_unchanged,
    forget_groups,
    get_world,
    group_of_tag,
    install_group,
    install_world_group,
    replaced,
    set_world,
)
from .meshes import shapes_found
from .pipelines import pipeline_kinds, pipeline_passes_told
from .profiling import (
    REGION_BEGINS,
    REGION_ENDS,
    be_profiled,
    begin_profiling,
    end_profiling,
    profiled_by,
    profiler_is_on,
)

__all__ = [
    "REGION_BEGINS",
    "REGION_ENDS",
    "FakeTensors",
    "RankWorld",
    "accelerator",
    "be_profiled",
    "before_backward_ends",
    "begin_profiling",
    "c10d_calls",
    "checkpoint_runs",
    "chosen_timeout",
    "compiled_as",
    "conversions_told",
    "copy_all",
    "declaration_of",
    "default_device",
    "device_of_group",
    "dispatch_is_seen",
    "dtensors_draw_under",
    "end_profiling",
    "excepthook_unchanged",
    "fake_as_real",
    "fake_tensors_in_foreach",
    "forget_groups",
    "get_world",
    "graph_task",
    "group_of_tag",
    "in_backward",
    "inside_of",
    "install_group",
    "install_world_group",
    "load_for_modes",
    "modes_unseen",
    "module_calls_told",
    "multiply_and_check",
    "native_code_calls",
    "native_code_will_wait",
    "node_running",
    "nodes_made",
    "number_of",
    "own_parameters",
    "parse_to_arguments",
    "pipeline_kinds",
    "pipeline_passes_told",
    "profiled_by",
    "profiler_is_on",
    "reducer_allocating",
    "replaced",
    "set_world",
    "shapes_found",
    "unobserved",
    "untyped",
]
