"""What fewer bits buy, and what casting by operator costs: beside fp32 and beside torch.amp, measured in one run.

    python benchmarks/precision.py [--quick]

Medians. On a GPU if there is one, and on the CPU's one thread otherwise. First how many times as fast as fp32 a matrix
product and a step of a GPT are; then the same steps of a GPT so small that Python is what takes time: ours and torch's.
"""

import argparse
import os
import statistics
import time
from contextlib import contextmanager, nullcontext

import torch

from tinydist.model import GPT, GPTConfig, batch
from tinydist.precision import FORMATS, LossScaler, MasterWeights, autocast, round_to

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
LOW = torch.bfloat16
MIDDLE = GPTConfig(layers=4, heads=8, dim=512, context=256) if DEVICE == "cpu" else GPTConfig(
    vocab_size=50304, layers=12, heads=12, dim=768, context=1024)  # fmt: skip
TINY = GPTConfig(layers=2, heads=2, dim=32, context=16)


def seconds(program):
    if DEVICE == "cuda":
        torch.cuda.synchronize()
    begin = time.perf_counter()
    program()
    if DEVICE == "cuda":
        torch.cuda.synchronize()
    return time.perf_counter() - begin


def medians(programs, times):
    """Seconds by name; in turn, so that all see the same noise."""
    samples = {name: [] for name in programs}
    for program in programs.values():
        program()
    for _ in range(times):
        for name, program in programs.items():
            samples[name].append(seconds(program))
    return {name: statistics.median(each) for name, each in samples.items()}


def report(title, found):
    first = next(iter(found.values()))
    print(title)
    for name, each in found.items():
        print(f"    {name:32}{each * 1e3:10.2f} ms{first / each:8.2f}x", flush=True)


@contextmanager
def tf32():
    torch.backends.cuda.matmul.allow_tf32 = True
    try:
        yield
    finally:
        torch.backends.cuda.matmul.allow_tf32 = False


def products(size, times):
    def product(dtype, context=nullcontext):
        x, y = (torch.randn(size, size, device=DEVICE).to(dtype) for _ in range(2))

        def run():
            with context():
                x @ y

        return run

    programs = {"fp32": product(torch.float32), "bf16": product(torch.bfloat16)}
    if DEVICE == "cuda":
        programs |= {"fp16": product(torch.float16), "tf32": product(torch.float32, tf32)}
    report(f"a product of {size} x {size}", medians(programs, times))


def step(config, size, context=nullcontext, dtype=torch.float32, scaled=False):
    model = GPT(config).to(DEVICE, dtype)
    optimizer = (MasterWeights if dtype != torch.float32 else torch.optim.AdamW)(model.parameters(), lr=1e-4)
    scaler = LossScaler() if scaled else None
    tokens, targets = (each.to(DEVICE) for each in batch(0, size, config.context))

    def run():
        with context():
            loss = model.loss(tokens, targets)
        optimizer.zero_grad()
        (scaler.scale(loss) if scaler else loss).backward()
        if scaler:
            scaler.step(optimizer)
            scaler.update()
        else:
            optimizer.step()

    return run


def ours(dtype=LOW):
    return lambda: autocast(DEVICE, dtype)


def torchs(dtype=LOW):
    return lambda: torch.autocast(DEVICE, dtype)


def steps(times):
    size = 4 if DEVICE == "cpu" else 8
    programs = {
        "fp32": step(MIDDLE, size),
        "bf16, our autocast": step(MIDDLE, size, ours()),
        "bf16, torch's autocast": step(MIDDLE, size, torchs()),
        "bf16, master weights": step(MIDDLE, size, dtype=LOW),
    }
    if DEVICE == "cuda":
        programs |= {
            "tf32": step(MIDDLE, size, tf32),
            "fp16, our autocast and scaler": step(MIDDLE, size, ours(torch.float16), scaled=True),
        }
    report(f"a step of a GPT, {MIDDLE.layers} layers of {MIDDLE.dim}, {size} x {MIDDLE.context} tokens",
           medians(programs, times))  # fmt: skip


def overhead(times):
    """Of forward alone: backward runs the same operators whoever cast."""
    model = GPT(TINY).to(DEVICE)
    tokens, targets = (each.to(DEVICE) for each in batch(0, 1, TINY.context))

    def forward(context):
        def run():
            with context():
                model.loss(tokens, targets)

        return run

    found = medians({"fp32": forward(nullcontext), "ours": forward(ours()), "torch's": forward(torchs())}, times)
    report("forward of a tiny GPT, where Python is what takes time", found)
    plain, mine, theirs = (each * 1e6 for each in found.values())
    print(f"    casting costs: ours {mine - plain:+.0f} us, torch's {theirs - plain:+.0f} us")


def rounding(count, times):
    x = torch.randn(count, device=DEVICE)
    for name in ("bf16", "fp8 e4m3"):
        dtype = FORMATS[name].dtype
        programs = {
            "torch's cast": lambda: x.to(dtype).float(),
            "round_to, nearest": lambda: round_to(x, dtype),
            "round_to, stochastic": lambda: round_to(x, dtype, "stochastic"),
        }
        report(f"{count} numbers to {name}", medians(programs, times))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--quick", action="store_true", help="fewer repetitions")
    options = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    where = torch.cuda.get_device_name() if DEVICE == "cuda" else f"{os.cpu_count()} processors, 1 thread"
    print(f"torch {torch.__version__}, {where}, {torch.backends.cpu.get_cpu_capability()}")
    products(1024 if DEVICE == "cpu" else 8192, 5 if options.quick else 15)
    steps(3 if options.quick else 7)
    overhead(50 if options.quick else 300)
    rounding(1_000_000, 3 if options.quick else 9)
