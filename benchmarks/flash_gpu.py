"""Flash attention on a GPU: our Triton kernels beside every backend of torch's SDPA, and FlashAttention where it is.

    python benchmarks/flash_gpu.py [--quick] [--dims 64 128] [--dtypes bfloat16] > table.md

TFLOP/s against length, forward and backward, by dtype and head dim, causal and not: 16,384 tokens a batch, of 2,048
numbers each. Medians. A product is 2 T S d FLOPs, half of that if causal; forward has 2, backward 5, whatever a kernel
computes again. "of FA2" is our part of what SDPA's FLASH_ATTENTION reaches.

Without a GPU nothing is measured: what would be is listed.
"""

import argparse
import statistics
from importlib.util import find_spec

import torch
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, activate_flash_attention_impl, restore_flash_attention_impl, sdpa_kernel

TOKENS, WIDTH = 16_384, 2_048
LENGTHS = (512, 1_024, 2_048, 4_096, 8_192, 16_384)
OURS, REFERENCE = "tinydist", "SDPA FLASH_ATTENTION"


def tinydist(q, k, v, causal):
    from tinydist.attention.flash_triton import flash_attention_triton

    return flash_attention_triton(q, k, v, causal=causal)


def of_sdpa(backend):
    def run(q, k, v, causal):
        with sdpa_kernel(backend):
            return F.scaled_dot_product_attention(q, k, v, is_causal=causal)

    return run


def third(q, k, v, causal):
    """SDPA with FlashAttention-3 in place of 2."""
    activate_flash_attention_impl("FA3")
    try:
        return of_sdpa(SDPBackend.FLASH_ATTENTION)(q, k, v, causal)
    finally:
        restore_flash_attention_impl()


def flash_attn(q, k, v, causal):
    from flash_attn import flash_attn_func

    return flash_attn_func(*(each.transpose(1, 2) for each in (q, k, v)), causal=causal).transpose(1, 2)


BACKENDS = ("FLASH_ATTENTION", "CUDNN_ATTENTION", "EFFICIENT_ATTENTION", "MATH")


def contenders(found=find_spec):
    """Name -> (q, k, v, causal) -> output; of those that are installed."""
    extras = {"flash_attn_interface": ("SDPA FA3", third), "flash_attn": ("flash-attn", flash_attn)}
    sdpa = {f"SDPA {name}": of_sdpa(getattr(SDPBackend, name)) for name in BACKENDS}
    ours = {OURS: tinydist} if found("triton") else {}
    return ours | sdpa | {name: run for module, (name, run) in extras.items() if found(module)}


def flops(batch, heads, tokens, dim, causal):
    """Of forward, and of backward."""
    product = 2 * batch * heads * tokens * tokens * dim / (2 if causal else 1)
    return 2 * product, 5 * product


def shape(tokens, dim):
    return max(1, TOKENS // tokens), max(1, WIDTH // dim), tokens, dim


def medians(run, q, k, v, causal, seconds):
    """Of forward, and of backward. ``seconds`` measures a call many times."""
    out = run(q, k, v, causal)
    dout = torch.randn_like(out)
    backward = seconds(lambda: torch.autograd.grad(out, (q, k, v), dout, retain_graph=True))
    with torch.no_grad():
        return statistics.median(seconds(lambda: run(q, k, v, causal))), statistics.median(backward)


def by_events(call):
    from triton.testing import do_bench

    return [each / 1e3 for each in do_bench(call, warmup=50, rep=200, return_mode="all")]


def measured(runs, sizes, dtype, causal, device, seconds):
    """Name -> TFLOP/s of forward and backward; or why there are none."""
    found = {}
    for name, run in runs.items():
        q, k, v = (torch.randn(sizes, device=device, dtype=dtype, requires_grad=True) for _ in range(3))
        try:
            times = medians(run, q, k, v, causal, seconds)
            found[name] = [count / time / 1e12 for count, time in zip(flops(*sizes, causal), times)]
        except Exception as refused:  # of one backend, a dtype, a length or this GPU
            found[name] = str(refused).strip().splitlines()[0] if str(refused).strip() else type(refused).__name__
    return found


def lines(title, rows):
    """A Markdown table: ``rows`` are of a length each, {name: figures or why not}."""
    names = list(next(iter(rows.values())))
    yield f"\n{title}\n"
    yield "| tokens | " + " | ".join(names) + " | of FA2 |"
    yield "|---" * (len(names) + 2) + "|"
    for tokens, found in rows.items():
        yield f"| {tokens:,} | " + " | ".join(map(figures, found.values())) + f" | {part(found)} |"
    refusals = {name: why for found in rows.values() for name, why in found.items() if isinstance(why, str)}
    yield from (f"\n{name}: {why}" for name, why in refusals.items())


def figures(found):
    return "–" if isinstance(found, str) else " / ".join(f"{each:.0f}" for each in found)


def part(found):
    ours, theirs = found.get(OURS, ""), found.get(REFERENCE, "")
    if isinstance(ours, str) or isinstance(theirs, str):
        return "–"
    return " / ".join(f"{mine / other:.2f}" for mine, other in zip(ours, theirs))


def tables(options, device="cuda", seconds=by_events, lengths=LENGTHS, runs=None):
    for dtype in options.dtypes:
        for dim in options.dims:
            for causal in (False, True):
                title = f"{dtype}, d = {dim}{', causal' * causal}: TFLOP/s, forward / backward"
                how = getattr(torch, dtype), causal, device, seconds
                rows = {each: measured(runs or contenders(), shape(each, dim), *how) for each in lengths}
                yield from lines(title, rows)


def asked(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--quick", action="store_true", help="up to 4,096 tokens only")
    parser.add_argument("--dims", type=int, nargs="+", default=[64, 128, 256])
    parser.add_argument("--dtypes", nargs="+", default=["bfloat16", "float16"])
    return parser.parse_args(arguments)


def main(options):
    if not torch.cuda.is_available():
        dims = ", ".join(map(str, options.dims))
        print(f"No GPU is here. On one, this would compare, for d = {dims} in {', '.join(options.dtypes)}:")
        print("\n".join(f"  {name}" for name in contenders()))
        return
    print(f"{torch.cuda.get_device_name()}, torch {torch.__version__}")
    for line in tables(options, lengths=[each for each in LENGTHS if each <= 4096 or not options.quick]):
        print(line, flush=True)


if __name__ == "__main__":
    main(asked())
