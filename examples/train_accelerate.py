"""Accelerate: the loop of one device, in which ``prepare`` makes of each part what ranks need.

    accelerate launch --multi_gpu --num_processes 2 examples/train_accelerate.py [--fsdp | --deepspeed] [--bf16]
    torchrun --nproc-per-node 2 examples/train_accelerate.py            # does the same

Without GPUs: ``accelerate launch --cpu`` starts one process (several only by mpirun); --multi_gpu starts several, and
cpu=True says what they run on. The FSDP plugin is taken and not used: without a word the model becomes that of DDP, as
what is held shows. The DeepSpeed plugin trains, if transformers is installed and the backend is named: without that,
Accelerate counts one process, and every rank trains on the same rows.
"""

import sys

import torch
from accelerate import Accelerator
from accelerate.utils import DeepSpeedPlugin, FullyShardedDataParallelPlugin, InitProcessGroupKwargs
from same_step import RANKS, RATE, ROWS, Report, loss_of, make_model, make_text, show, unseen_buckets
from torch.utils.data import DataLoader


def plain(precision):
    return Accelerator(cpu=True, mixed_precision=precision)


def fsdp(precision):
    units = {"auto_wrap_policy": "transformer_based_wrap", "transformer_cls_names_to_wrap": ["Block"]}
    plugin = FullyShardedDataParallelPlugin(fsdp_version=2, **units)
    return Accelerator(cpu=True, mixed_precision=precision, fsdp_plugin=plugin)


def deepspeed(precision):
    """By a configuration of DeepSpeed's: the plugin's own gradient_clipping=0.0 is lost, and it would clip at 1."""
    from train_deepspeed import configuration

    plugin = DeepSpeedPlugin(hf_ds_config=configuration(2, "bf16" if precision == "bf16" else "fp32"))
    gloo = InitProcessGroupKwargs(backend="gloo")
    return Accelerator(mixed_precision=precision, deepspeed_plugin=plugin, kwargs_handlers=[gloo])


WAYS = {"plain": plain, "fsdp": fsdp, "deepspeed": deepspeed}


def main(way="plain", precision="no"):
    accelerator = WAYS[way](precision)
    text = make_text()
    report = Report()
    model = make_model()
    optimizer = torch.optim.AdamW(model.parameters(), lr=RATE)
    loader = DataLoader(text, batch_size=ROWS // RANKS)  # rows of one rank: prepare deals them out
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)

    for tokens, targets in loader:
        optimizer.zero_grad()
        with accelerator.autocast():
            loss = loss_of(model(tokens), targets)
        accelerator.backward(loss)
        optimizer.step()
        report.step(loss.item())

    found = report.end(unseen_buckets(model))
    accelerator.end_training()
    return found


if __name__ == "__main__":
    chosen = next((way for way in WAYS if f"--{way}" in sys.argv), "plain")
    show(main(chosen, "bf16" if "--bf16" in sys.argv else "no"))
