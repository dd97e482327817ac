"""DistributedDataParallel on pretended GPUs: its C++ allocates the buckets."""

import os

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import fp16_compress_hook

import tinydist


def test_a_communication_hook_is_given_buckets_on_the_gpu_also_after_they_were_rebuilt():
    def program():
        local = int(os.environ["LOCAL_RANK"])
        torch.cuda.set_device(local)
        dist.init_process_group("nccl")
        model = nn.parallel.DistributedDataParallel(nn.Linear(4, 4).cuda(), device_ids=[local])
        seen = []

        def hook(state, bucket):
            seen.append(str(bucket.buffer().device))
            return fp16_compress_hook(state, bucket)

        model.register_comm_hook(None, hook)
        for _ in range(3):
            model(torch.full((1, 4), local + 1.0, device="cuda")).sum().backward()
        return seen, model.module.weight.grad[0, 0].item()

    run = tinydist.launch(program, 2, init=False, gpus=True)
    assert run.results == [(["cuda:0"] * 3, 4.5), (["cuda:1"] * 3, 4.5)], "3 steps of (1 + 2) / 2"
