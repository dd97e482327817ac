"""Tests of torch.distributed that torch ships pass on simulated ranks: some here, all in `make exhaustive`."""

import pytest
from simulator import torchs_own_tests as torchs_own

GPU = "needs GPUs, and does not say so"
EVENTS = "looks for what gloo's own threads record in the profiler"
CLOCK = "measures how long a timeout takes on the wall's clock"
NOT_HERE = {
    "test_SyncBatchNorm_process_group": "needs torchvision",
    "test_all_to_all_cuda": GPU,
    "test_all_to_all_cuda_complex": GPU,
    "test_all_to_all_full_group_cuda": GPU,
    "test_all_to_all_group_cuda": GPU,
    "test_barrier_timeout_full_group": CLOCK,
    "test_barrier_timeout_global": CLOCK,
    "test_barrier_timeout_group": CLOCK,
    "test_batch_isend_irecv_op_err": GPU,
    "test_ddp_logging_data_cpu": "reads the name of the backend from C++: it is simulated",
    "test_get_rank": "counts processes",
    "test_isend_autograd_profiler": EVENTS,
    "test_isend_torch_profiler": EVENTS,
    "test_new_subgroups_with_group_param": "is written for four ranks",
    "test_send_recv_any_source_autograd_profiler": EVENTS,
    "test_send_recv_any_source_torch_profiler": EVENTS,
    "test_send_recv_autograd_profiler": EVENTS,
    "test_send_recv_torch_profiler": EVENTS,
    "test_send_recv_with_tag_autograd_profiler": EVENTS,
    "test_send_recv_with_tag_torch_profiler": EVENTS,
}
SAMPLE = {
    "test_DistributedDataParallelCPU",
    "test_accumulate_gradients_no_sync_allreduce_with_then_hook",
    "test_all_gather_coalesced_with_empty",
    "test_all_gather_object_subgroup",
    "test_all_reduce_coalesced_group_max",
    "test_all_reduce_full_group_product",
    "test_all_reduce_sum_async",
    "test_all_to_all_single_unequal_split_group",
    "test_barrier_group",
    "test_batch_isend_irecv_gloo_tags",
    "test_broadcast_full_group",
    "test_ddp_create_graph",
    "test_gather_object_subgroup",
    "test_isend",
    "test_monitored_barrier_failure_order",
    "test_monitored_barrier_wait_all_ranks",
    "test_sparse_all_reduce_sum",
    "test_static_graph_api_cpu",
    "test_scatter_object_list",
    "test_send_recv_any_source",
}


def each(name):
    return pytest.param(name, marks=[] if name in SAMPLE else pytest.mark.exhaustive)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", [each(name) for name in torchs_own.NAMES])
def test_torchs_own(name, capfd):
    if name in NOT_HERE:
        pytest.skip(NOT_HERE[name])
    why = torchs_own.run(name)
    if why:
        pytest.skip(why)


def test_what_is_named_here_is_a_test_of_torch():
    assert set(torchs_own.NAMES) >= SAMPLE and len(SAMPLE) == 20 and not SAMPLE & NOT_HERE.keys()
