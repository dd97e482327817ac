"""DeepSpeed, ZeRO 1, 2 or 3, by a configuration: an engine has the model, the optimizer and their steps.

    deepspeed --num_accelerators 2 examples/train_deepspeed.py [--stage 3] [--bf16] [--defaults]
    torchrun --nproc-per-node 2 examples/train_deepspeed.py            # does the same

Without GPUs it trains on its CPU accelerator, with gloo. (DS_ACCELERATOR=cpu says so where there are some.)
"""

import argparse

import deepspeed
import torch
from same_step import RANKS, RATE, ROWS, Report, loss_of, make_model, make_text, show
from torch.utils.data import DataLoader, DistributedSampler

# An all-reduce through shared memory, which the first start would compile in C++: gloo does as well
deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False


def configuration(stage, precision, defaults=False):
    """What a ds_config.json has. Sizes are in numbers. ``defaults``: without the two lines that a first file lacks."""
    made = {
        "train_micro_batch_size_per_gpu": ROWS // RANKS,
        "gradient_clipping": 0.0,  # without this line it clips at 1
        "zero_optimization": {
            "stage": stage,
            "reduce_bucket_size": 200_000,  # as it is, 500 million: 2 GB
            "stage3_param_persistence_threshold": 0,  # as it is, all parameters below 100,000 stay whole: each of these
        },
        "bf16": {"enabled": precision == "bf16"},
    }
    if defaults:
        del made["gradient_clipping"], made["zero_optimization"]["stage3_param_persistence_threshold"]
    return made


def main(stage=2, precision="fp32", defaults=False):
    deepspeed.init_distributed()
    text = make_text()
    report = Report()
    model = make_model()
    optimizer = torch.optim.AdamW(model.parameters(), lr=RATE)
    engine, *_ = deepspeed.initialize(
        model=model, optimizer=optimizer, config=configuration(stage, precision, defaults)
    )
    loader = DataLoader(text, batch_size=ROWS // RANKS, sampler=DistributedSampler(text, shuffle=False))

    for tokens, targets in loader:
        loss = loss_of(engine(tokens), targets)
        engine.backward(loss)
        engine.step()  # which frees the gradients
        report.step(loss.item())

    found = report.end()
    engine.destroy()
    deepspeed.comm.destroy_process_group()
    return found


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--stage", type=int, default=2)
    parser.add_argument("--bf16", action="store_const", const="bf16", default="fp32", dest="precision")
    parser.add_argument("--defaults", action="store_true")
    parser.add_argument("--local_rank", help="which `deepspeed` passes")
    chosen = parser.parse_args()
    show(main(chosen.stage, chosen.precision, chosen.defaults))
