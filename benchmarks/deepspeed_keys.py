"""What keys of a ds_config.json cost in DeepSpeed itself: bytes sent in a step, held between steps, and at the peak.

    .venv-systems/bin/python benchmarks/deepspeed_keys.py [--write]     # --write: into the table of notebook 11b

Two gloo processes, a GPT of 3.7M parameters in bf16, the third of three steps, each of 8 rows. By default stage 3's
prefetch bucket (5e7) is larger than this model, and it would be gathered at once: "auto" is what transformers' Trainer
fills in (reduce_bucket_size width^2, stage3_prefetch_bucket_size 0.9 width^2, stage3_param_persistence_threshold 10
times the width).

    sent    by a rank, in a ring: (p - 1)/p of what is gathered or scattered, twice that for an all-reduce
    held    the storages of all tensors that are there, before the step
    peak    the same, the most of it in forward and backward passes (torch's AdamW takes more, for a moment: on a GPU
            DeepSpeed has a fused one)
"""

import argparse
import gc
import warnings
from collections import Counter
from contextlib import contextmanager
from datetime import date
from importlib.metadata import version
from pathlib import Path

import torch
import torch.distributed as dist
from torch.multiprocessing.reductions import StorageWeakRef
from torch.nn.functional import cross_entropy
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

import tinydist
from benchmarks import csv_rows
from tinydist.model import GPT, GPTConfig

FILE = Path(__file__).parents[1] / "notebooks" / "data" / "11b_deepspeed.csv"
RANKS, ROWS = 2, 8
MODEL = GPTConfig(vocab_size=2048, context=32, layers=4, heads=4, dim=256)
PER_RANK = {"all_gather_into_tensor": 1, "reduce_scatter_tensor": 1, "broadcast": 1, "reduce": 1, "all_reduce": 2}
WIDTH = MODEL.dim
AUTO = {
    "stage": 3,
    "reduce_bucket_size": WIDTH**2,
    "stage3_prefetch_bucket_size": int(0.9 * WIDTH**2),
    "stage3_param_persistence_threshold": 10 * WIDTH,
}
ALONE = AUTO | {"stage3_prefetch_bucket_size": 0, "stage3_param_persistence_threshold": 0}
FAR, NEAR = {"stage3_max_reuse_distance": 1e9}, {"stage3_max_reuse_distance": 0}
OVERLAP = {"stage": 2, "overlap_comm": True}
KEYS = {  # the row's name -> its zero_optimization
    "stage 0": {"stage": 0},
    "stage 1": {"stage": 1},
    "stage 2": {"stage": 2},
    "stage 2, no multi-rank bucket": {"stage": 2, "use_multi_rank_bucket_allreduce": False},
    "bucket 1e6": {"stage": 2, "reduce_bucket_size": 1e6},
    "bucket 1e6, overlap": OVERLAP | {"reduce_bucket_size": 1e6},
    "bucket 2e8": {"stage": 2, "reduce_bucket_size": 2e8},
    "bucket 2e8, overlap": OVERLAP | {"reduce_bucket_size": 2e8},
    "stage 3": {"stage": 3},
    "stage 3, auto": AUTO | FAR,
    "stage 3, auto, reuse 0": AUTO | NEAR,
    "stage 3, no prefetch": ALONE | FAR,
    "stage 3, no prefetch, reuse 0": ALONE | NEAR,
}
CASES = {name: (1, keys) for name, keys in KEYS.items()} | {"stage 1, micro batch 4": (4, {"stage": 1})}


@contextmanager
def collectives():
    """Counts those that are called meanwhile: (name, bytes of the larger tensor) -> how often."""
    counts, real = Counter(), {name: getattr(dist, name) for name in PER_RANK}

    def counting(name):
        def call(*arguments, **named):
            tensors = [each for each in (*arguments, *named.values()) if isinstance(each, torch.Tensor)]
            counts[name, max(each.nbytes for each in tensors)] += 1
            return real[name](*arguments, **named)

        return call

    for name in PER_RANK:
        setattr(dist, name, counting(name))
    try:
        yield counts
    finally:
        for name, function in real.items():
            setattr(dist, name, function)


def sent(counts):
    per_whole = (RANKS - 1) / RANKS
    return round(sum(PER_RANK[name] * per_whole * size * often for (name, size), often in counts.items()))


class Storages(TorchDispatchMode):
    """The bytes of all storages that operators have returned, as long as these live."""

    def __init__(self):
        super().__init__()
        self.living, self.peak = {}, 0

    def __torch_dispatch__(self, function, types, arguments=(), named=None):
        result = function(*arguments, **(named or {}))
        for tensor in tree_leaves(result):
            if not isinstance(tensor, torch.Tensor) or tensor.is_meta:
                continue
            storage = tensor.untyped_storage()
            self.living[storage._cdata] = StorageWeakRef(storage), storage.nbytes()
        self.peak = max(self.peak, self.held())
        return result

    def held(self):
        self.living = {key: each for key, each in self.living.items() if not each[0].expired()}
        return sum(nbytes for _, nbytes in self.living.values())


def two_steps(micro, zero):
    """What to call for the passes of a third one, and for its end."""
    import deepspeed  # here, as the collectives that it takes are those that are counted

    deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False  # else compiled in C++: gloo does as well
    deepspeed.init_distributed()
    torch.manual_seed(0)
    sizes = {"train_batch_size": ROWS, "train_micro_batch_size_per_gpu": micro}
    adam = {"type": "AdamW", "params": {"lr": 1e-4, "torch_adam": True}}
    said = sizes | {"bf16": {"enabled": True}, "optimizer": adam, "gradient_clipping": 0.0, "zero_optimization": zero}
    model = GPT(MODEL)
    engine, *_ = deepspeed.initialize(model=model, model_parameters=model.parameters(), config=said)
    tokens = torch.zeros(micro, MODEL.context, dtype=torch.int64)

    def passes():
        for micro_step in range(engine.gradient_accumulation_steps()):
            if micro_step:
                engine.step()  # between two microbatches: nothing is due
            logits = engine(tokens)
            engine.backward(cross_entropy(logits.float().flatten(0, 1), tokens.flatten()))

    for _ in range(2):
        passes()
        engine.step()
        gc.collect()
    return passes, engine.step


def measured(micro, zero):
    """Of rank 0 (a program of ``launch``): what it sent, what it held, at most, and its parameters."""
    warnings.filterwarnings("ignore", category=FutureWarning)
    with collectives() as counts, Storages() as storages:
        passes, step = two_steps(micro, zero)
        counts.clear()
        held = storages.peak = storages.held()
        passes()
        peak = storages.peak
        step()
        dist.barrier()
    return sent(counts), held, peak


def found(name):
    """Of rank 0."""
    result = tinydist.launch(measured, RANKS, *CASES[name], backend="gloo", init=False, observe=False).results[0]
    return dict(zip(("sent", "held", "peak"), result))


def stored():
    """The rows as they were last written: name -> its numbers."""
    rows = csv_rows.read(FILE)
    return {row["keys"]: {each: int(row[each]) for each in ("sent", "held", "peak")} for row in rows}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true")
    chosen, rows = parser.parse_args(), []
    versions = " ".join(f"{name} {version(name)}" for name in ("deepspeed", "torch"))
    for name in CASES:
        rows.append({"keys": name, **found(name), "version": versions, "date": date.today().isoformat()})
        print("{keys:36} sent {sent:12,}  held {held:14,}  peak {peak:14,}".format(**rows[-1]), flush=True)
    if chosen.write:
        csv_rows.write(FILE, rows)


if __name__ == "__main__":
    from benchmarks import deepspeed_keys  # processes do not find what is in __main__

    deepspeed_keys.main()
