"""A pipeline schedule of a million passes, analyzed in under a second; and torch's dry run of a small one beside ours.

python benchmarks/pipeline.py
"""

import statistics
import time

from torch.distributed.pipelining._schedule_visualizer import get_schedule_ops
from torch.distributed.pipelining.schedules import _simulate_comms_compute

from tinydist.pipeline_parallel import analyze, make_schedule, verify
from tinydist.pipeline_parallel.torch_csv import NOT_KEPT, from_rows

ROUNDS, TARGET = 5, 1.0
LARGE, SMALL = (64, 4096, 2), (8, 64, 2)  # ranks, microbatches, stages a rank


def seconds(work):
    times = []
    for _ in range(ROUNDS):
        began = time.perf_counter()
        work()
        times.append(time.perf_counter() - began)
    return statistics.median(times)


def main():
    large = make_schedule("interleaved 1F1B", *LARGE)
    passes = sum(map(len, large.programs))
    print(f"interleaved 1F1B, {LARGE[0]} ranks, {LARGE[1]} microbatches, {LARGE[2]} stages a rank: {passes:,} passes")
    print(f"  made         {seconds(lambda: make_schedule('interleaved 1F1B', *LARGE)):6.2f} s")
    print(f"  analyzed     {seconds(lambda: analyze(large)):6.2f} s     (at most {TARGET})")

    rows = get_schedule_ops("Interleaved1F1B", *SMALL, with_comms=True)
    rows = [[each for each in row if not NOT_KEPT.fullmatch(str(each))] for row in rows]
    small = verify(from_rows(rows, "torch's"))
    theirs = seconds(lambda: _simulate_comms_compute(dict(enumerate(rows)), small.rank_of.__getitem__, small.stages))
    print(f"{SMALL[0]} ranks, {SMALL[1]} microbatches, with messages: {sum(map(len, small.programs)):,} actions")
    print(f"  analyzed     {1e3 * seconds(lambda: analyze(small)):6.1f} ms")
    print(f"  verified     {1e3 * seconds(lambda: verify(small)):6.1f} ms")
    print(f"  torch's dry run, in steps without times   {1e3 * theirs:6.1f} ms")


if __name__ == "__main__":
    main()
