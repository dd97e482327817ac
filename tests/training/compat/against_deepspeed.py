"""The same steps by DeepSpeed and by this library: a configuration, a model and data, and what came of them.

Run by torchrun, it asks DeepSpeed, and prints a line of JSON for each rank.
"""

import json
import os
import sys

import torch
import torch.distributed as dist
from torch import nn

STEPS, RANKS = 20, 2
BLOWS = (4, 5, 6, 11)  # microbatches whose loss is inf on one rank, in fp16


def configuration(stage, precision, accumulation):
    optimizer = {"type": "Adam", "params": {"lr": 1e-2, "weight_decay": 0.1, "torch_adam": True}}
    scheduler = {"type": "WarmupLR", "params": {"warmup_num_steps": 5, "warmup_max_lr": 1e-2}}
    sizes = {"train_micro_batch_size_per_gpu": 4, "gradient_accumulation_steps": accumulation}
    scale = {"initial_scale_power": 8, "loss_scale_window": 3} if precision == "fp16" else {}
    numbers = {} if precision == "fp32" else {precision: {"enabled": True, **scale}}
    return {**sizes, "optimizer": optimizer, "scheduler": scheduler, "zero_optimization": {"stage": stage}, **numbers}


def losses_of(initialize, config, scale_of):
    """Of this rank: losses, rates, and scales."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 32), nn.Tanh(), nn.Linear(32, 32), nn.Tanh(), nn.Linear(32, 4))
    engine, *_ = initialize(model=model, model_parameters=model.parameters(), config=config)
    dtype, found = next(model.parameters()).dtype, []
    for micro in range(STEPS * config["gradient_accumulation_steps"]):
        draw = torch.Generator().manual_seed(1000 * micro + dist.get_rank())
        inputs, labels = torch.randn(4, 8, generator=draw), torch.randint(4, (4,), generator=draw)
        loss = nn.functional.cross_entropy(engine(inputs.to(dtype)).float(), labels)
        blows = "fp16" in config and micro in BLOWS and dist.get_rank() == 1
        engine.backward(loss * float("inf") if blows else loss)
        engine.step()
        found.append((loss.item(), engine.get_lr()[0], scale_of(engine)))
    return found


def main(cases):
    import deepspeed

    sys.modules["deepspeed.comm.torch"].build_shm_op = lambda: None  # or it compiles for minutes
    # It refuses fp16 on a CPU without AVX512-FP16 (oneDNN has kernels for it there alone). torch computes it on any.
    deepspeed.accelerator.get_accelerator().is_fp16_supported = lambda: True
    deepspeed.init_distributed("gloo")

    def scale_of(engine):
        """With ZeRO, and without."""
        holders = [getattr(engine.optimizer, name, None) for name in ("loss_scaler", "loss_scale_config")]
        return next((float(each.cur_scale) for each in holders if hasattr(each, "cur_scale")), 1.0)

    found = [losses_of(deepspeed.initialize, configuration(*case), scale_of) for case in cases]
    with open(f"{os.environ['FOUND']}-{dist.get_rank()}", "w") as file:
        json.dump(found, file)


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
