"""Published measurements of collectives: seconds by size, each table with its machine, its method and its source.

    ALL_REDUCES         bus bandwidth of all-reduces from 32 KiB to 16 GiB: by PyTorch, one call at a time on an idle
                        device; A100s by nccl-tests, back to back
    QUEUED              the same by PyTorch, calls queued behind one another; four nodes with RAN, RAN_BY
    FORCED              four nodes, of two kinds, 4 GiB, once by rings and once by NVLSTree (NCCL_ALGO)
    SYMMETRIC           the same on symmetric memory
    HALVES              all-gathers and reduce-scatters on 8 H100s
    SHOTS               one-shot, two-shot and NCCL's all-reduces in servers, H100
    WAYS                five all-reduces of four and of six H100s, 0.5 to 4 MiB
    ONES                nine collectives on 8 B200s: 1 KiB, and 16 GiB
    LARGE               all-reduce, with and without NVLS, all-gather and reduce-scatter on 8 H200s, 16 GiB
    EXCHANGES           bus bandwidth of an all-to-all over nodes, and what all their cards reach together
    SHARP               all-reduces of 4 to 8 GPUs of a node, with and without NVLS, 8 GiB
    PODS                single rows of nodes of A100s, H100s and B200s over InfiniBand, RoCE or EFA

One call on an idle device also takes what PyTorch's host takes to start it: ``CALL`` seconds.
"""

from typing import NamedTuple

from .bus_bandwidth import bus_factor

SIZES = [32 * 1024 * 2**doublings for doublings in range(20)]  # bytes: 32 KiB to 16 GiB
KIB, MIB, GIB = 2**10, 2**20, 2**30


def by_size(*gigabytes):
    return {size: each * 1e9 for size, each in zip(SIZES, gigabytes, strict=True)}


def seconds_of(bandwidths, ranks, what="all_reduce"):
    """Of a table of bus bandwidths, {bytes: bytes/s}: {bytes: seconds}."""
    factor = bus_factor(what, ranks)
    return {nbytes: factor * nbytes / each for nbytes, each in bandwidths.items()}


# ml-engineering@744d01e1 network/README.md (read), in bytes/s. By PyTorch and NCCL 2.27.7, one call at a time; but the
# A100s by nccl-tests, "all_reduce_perf -b 32k -e 16G -f 2 -g 8 -n 50", without -z: so back to back, in C++, with no
# host of PyTorch in the time (benchmarks/README.md of that page, nccl-tests@a0b82b2 README.md, read). Its NCCL is not
# said.
# The four nodes are joined by AWS EFA v4, a card of 50 GB/s for each device.
ALL_REDUCES = {
    "8 x A100": by_size(
        1.31, 2.45, 4.43, 7.47, 11.41, 18.00, 36.18, 72.33, 109.93, 106.16,
        138.49, 171.54, 176.92, 194.07, 222.72, 229.04, 231.41, 233.88, 234.61, 234.89,
    ),
    "8 x H200": by_size(
        1.44, 2.93, 5.73, 11.74, 23.94, 39.93, 64.53, 107.16, 155.53, 219.89,
        275.84, 346.51, 401.93, 436.15, 450.29, 463.58, 469.17, 473.10, 477.45, 482.26,
    ),
    "8 x B200": by_size(
        1.20, 2.17, 4.86, 9.54, 18.71, 36.06, 63.09, 76.48, 126.49, 254.96,
        325.97, 400.60, 568.38, 646.11, 688.99, 723.34, 734.97, 740.64, 839.07, 845.67,
    ),
    "4 x 8 B200": by_size(
        0.01, 0.04, 0.45, 1.33, 2.84, 5.37, 10.38, 18.90, 35.12, 64.43,
        91.19, 156.74, 197.94, 229.09, 326.90, 361.99, 372.42, 377.34, 380.39, 381.80,
    ),
}  # fmt: skip

# What a call takes besides its kernel: PyTorch's host, 20 to 30 us (ml-engineering@0cc3de50, read). Of H200 and B200
# it is the median difference between the tables here and in QUEUED. Of the four nodes that difference goes from -1,204
# to +6,250 us, in other versions of NCCL: no constant describes it, so they have the host's start alone. The A100s'
# calls were back to back.
CALL = {"8 x A100": 0.0, "8 x H200": 20e-6, "8 x B200": 20e-6, "4 x 8 B200": 20e-6}

# Rows that no steady state explains: the first sizes that the four nodes ran. The same nodes took 99, 101 and 109 us
# for them when calls were queued, and took 382 us for the next size here, less than for these.
COLD = {("4 x 8 B200", size) for size in SIZES[:3]}

# ml-engineering@0cc3de50 network/README.md (read): NCCL 2.30.7, means of two sweeps, up to 10 calls queued while the
# device is busy. The algorithms of the four nodes are from NCCL's log, ``RAN``; AWS's plugin chose them. By the same
# page NCCL 2.27.7 took the same algorithms, and was so many times as fast there, ``OLDER``. ``FORCED``: NCCL_ALGO=ring
# and nvlstree at 4 GiB; of H200s, EFA v3, 16 cards of 25 GB/s a node, NCCL 2.27.7 (ml-engineering@744d01e1, read).
QUEUED = {
    "8 x H200": by_size(
        3.15, 6.16, 12.46, 24.68, 48.15, 74.57, 96.26, 145.14, 196.56, 255.90,
        301.25, 368.86, 414.54, 441.87, 456.23, 465.91, 471.06, 474.13, 478.24, 482.25,
    ),
    "8 x B200": by_size(
        2.17, 3.95, 8.07, 15.57, 29.07, 58.54, 104.27, 127.85, 195.60, 294.36,
        362.00, 419.98, 591.14, 658.63, 703.38, 721.37, 739.47, 749.12, 832.48, 838.97,
    ),
    "4 x 8 B200": by_size(
        0.64, 1.26, 2.33, 3.97, 6.97, 12.56, 20.82, 31.56, 49.73, 72.03,
        142.50, 198.07, 260.25, 282.60, 310.96, 366.15, 371.24, 374.66, 376.05, 376.60,
    ),
}  # fmt: skip
RAN = dict(zip(SIZES, ["Tree"] * 10 + ["Ring"] * 2 + ["NVLSTree"] * 2 + ["Ring"] * 6, strict=True))
RAN_BY = dict(zip(SIZES, ["LL"] * 4 + ["LL128"] * 8 + ["Simple"] * 8, strict=True))  # protocols
FORCED = {
    "4 x 8 B200": {"NCCL Ring": 375.22e9, "NCCL NVLSTree": 308.15e9},
    "4 x 8 H200": {"NCCL Ring": 364.65e9, "NCCL NVLSTree": 310.07e9},
}
OLDER = {16 * MIB: 1.53, 32 * MIB: 0.90, 64 * MIB: 1.16}
SYMMETRIC = {
    "8 x H200": by_size(
        7.34, 14.36, 27.91, 48.50, 87.84, 145.04, 210.12, 297.81, 370.67, 408.19,
        448.22, 460.66, 469.36, 475.13, 477.34, 479.98, 480.64, 483.06, 483.94, 484.08,
    ),
    "8 x B200": by_size(
        5.31, 8.64, 16.52, 33.53, 61.56, 104.34, 184.07, 301.25, 426.89, 568.35,
        679.39, 738.62, 776.80, 794.80, 806.40, 809.47, 807.06, 816.49, 819.30, 820.04,
    ),
}  # fmt: skip

# On 8 H100s, {bytes: seconds}. NVIDIA/Megatron-LM#5596: kernels of FSDP, without and with symmetric memory.
# NVIDIA/nccl#1047: nccl-tests, NCCL_ALGO=Ring. Both read, as far as a search shows them.
HALVES = {
    ("all_gather", None): {2 * MIB: 20.2e-6, 8 * MIB: 43.4e-6, 32 * MIB: 118.9e-6, 128 * MIB: 385.3e-6},
    ("reduce_scatter", None): {
        2 * MIB: 18.6e-6, 8 * MIB: 47.0e-6, 32 * MIB: 112.6e-6, 128 * MIB: 377.2e-6, 256 * MIB: 709.7e-6,
        512 * MIB: 1377.8e-6, GIB: 2689.3e-6, 2 * GIB: 5295.9e-6, 4 * GIB: 10505e-6, 8 * GIB: 20754e-6,
    },
    ("all_gather", "one-shot"): {2 * MIB: 10.9e-6, 8 * MIB: 27.4e-6, 32 * MIB: 95.3e-6},
    ("reduce_scatter", "one-shot"): {2 * MIB: 10.8e-6, 8 * MIB: 28.8e-6, 32 * MIB: 100.5e-6},
}  # fmt: skip

# All-reduces of servers on H100s, {(ranks, algorithm): {bytes: microseconds}}, read as far as a search shows them.
# vllm-project/vllm#42324: NCCL, multimem and two-shot of torch, captured in a graph; the heading with the number of
# GPUs was not seen, NCCL's times are those of 8. vllm-project/vllm#24111: vLLM's one-shot kernel and torch's two-shot
# in a graph, on 4 and on 6, as its tables say.
# sgl-project/sglang#2904: sglang's kernel, and vLLM's, without a graph.
ODD = 50_163_876  # 47.84 MiB, as the table has it
SHOTS = {
    "vllm#42324": {
        (8, "NCCL"): {MIB // 2: 24, MIB: 25, 3 * MIB // 2: 33, 2 * MIB: 37, 3 * MIB: 44, 4 * MIB: 50, 8 * MIB: 76,
                      16 * MIB: 121, 32 * MIB: 195, ODD: 267, 64 * MIB: 316, 128 * MIB: 561},
        (8, "two-shot"): {MIB // 2: 15, MIB: 17, 3 * MIB // 2: 19, 2 * MIB: 22, 3 * MIB: 29, 4 * MIB: 37, 8 * MIB: 65,
                          16 * MIB: 125, 32 * MIB: 242, ODD: 354, 64 * MIB: 468, 128 * MIB: 923},
        (8, "symmetric"): {MIB // 2: 11, MIB: 14, 3 * MIB // 2: 16, 2 * MIB: 18, 3 * MIB: 23, 4 * MIB: 27, 8 * MIB: 46,
                           16 * MIB: 87, 32 * MIB: 165, ODD: 244, 64 * MIB: 320, 128 * MIB: 631},
    },
    "vllm#24111": {
        (6, "one-shot"): {MIB // 2: 13, MIB: 21, 2 * MIB: 38, 4 * MIB: 70},
        (4, "two-shot"): {MIB // 2: 18, MIB: 19, 2 * MIB: 23, 4 * MIB: 29},
        (6, "two-shot"): {MIB // 2: 17, MIB: 21, 2 * MIB: 29, 4 * MIB: 41},
    },
    "sglang": {(8, "one-shot"): {32 * KIB: 7.8}, (8, "two-shot"): {256 * KIB: 16.7, MIB // 2: 22.1}},
    "vLLM": {
        (2, "custom"): {32 * KIB: 8.7, 256 * KIB: 12.9, MIB // 2: 17.7, MIB: 26.6},
        (4, "custom"): {32 * KIB: 9.2, 256 * KIB: 20.6, MIB // 2: 26.9, MIB: 40.2},
        (8, "custom"): {32 * KIB: 11.8, 256 * KIB: 24.1, MIB // 2: 30.4, MIB: 45.0},
    },
}  # fmt: skip

# All ways of vllm#24111's tables of H100s, TP=6 and TP=4, at 0.5, 1, 2 and 4 MiB (ca_1stage, ca_2stage,
# symm_mem_two_shot, symm_mem_multimem, pynccl), in microseconds.
WAYS = {
    6: {"one-shot": [13, 21, 38, 70], "two-shot, vLLM's": [15, 17, 26, 37], "two-shot, PyTorch's": [17, 21, 29, 41],
        "in the switch": [13, 16, 21, 31], "NCCL": [23, 25, 43, 53]},
    4: {"one-shot": [10, 15, 22, 38], "two-shot, vLLM's": [17, 18, 27, 43], "two-shot, PyTorch's": [18, 19, 23, 29],
        "in the switch": [16, 18, 23, 33], "NCCL": [17, 19, 26, 37]},
}  # fmt: skip

# On 8 B200s, NCCL 2.30.7: median seconds of 1 KiB, timed one by one, and bus bandwidth of 16 GiB
# (ml-engineering, about fb75494c, network/benchmarks/README.md: torch-dist-bench, read).
ONES = {
    "all_reduce": (29.7e-6, 839.63e9), "all_gather": (20.5e-6, 668.28e9), "reduce_scatter": (20.5e-6, 692.63e9),
    "all_to_all": (15.6e-6, 659.71e9), "broadcast": (12.3e-6, 672.71e9), "reduce": (12.3e-6, 692.63e9),
    "gather": (12.3e-6, 718.33e9), "scatter": (16.4e-6, 717.11e9), "send": (18.4e-6, 658.84e9),
}  # fmt: skip

# nccl-tests, bus bandwidth (ml-engineering@744d01e1 network/README.md, read). NVLS off: NCCL_NVLS_ENABLE=0. Of B200s
# AWS's plugin chooses the algorithm.
LARGE = {
    "all_reduce": 480.0e9, "all_reduce, NVLS off": 367.2e9, "all_gather": 361.4e9, "reduce_scatter": 362.9e9,
}  # fmt: skip
SHARP = {  # GPUs -> with NVLS, where NCCL takes it, and without
    "H200": {4: (363.3e9, 363.3e9), 5: (414.2e9, 364.4e9), 6: (435.6e9, 365.1e9), 7: (460.0e9, 365.7e9),
             8: (473.1e9, 365.6e9)},
    "B200": {4: (673.2e9, 673.8e9), 5: (677.8e9, 677.8e9), 6: (778.2e9, 677.8e9), 7: (811.2e9, 680.5e9),
             8: (838.0e9, 682.2e9)},
}  # fmt: skip

# Source -> nodes, GPUs in each, what all cards of a node reach, and the bus bandwidth of an all-to-all, by nccl-tests
# (read, as far as a search shows them). #78: V100s, 512 MiB, December 2021: an all-reduce's bus bandwidth, and #59:
# "~200" and "closer to 25" GB/s on Selene, December 2020. nccl#1138: A100s, 4 GiB, January 2024: 4 cards of 200 Gbit/s.
EXCHANGES = {
    "NVIDIA/nccl-tests#78": (8, 8, 4.32e9, 0.51e9),
    "NVIDIA/nccl-tests#59": (2, 8, 200e9, 25e9),
    "NVIDIA/nccl#1138": (2, 8, 4 * 25e9, 19.83e9),
}


class PodRow(NamedTuple):
    """An all-reduce by nccl-tests. Its calls follow one another on a busy device."""

    node: str  # a preset of cluster.py
    nodes: int
    gpus: int  # of each node that take part
    cards: int  # of each node
    algorithm: str | None  # NCCL_ALGO, where it was set
    nbytes: int
    seconds: float
    source: str
    inter_node: str | None = None  # another link than the preset's


# All read as far as a search shows them: first rows or last ones, out of place. NCCL 2.16.5 in nccl#812, whose cards
# have 100 Gbit/s each, 2.20.5 in nccl#1469; of the others it is not said. dstack#3961: two p6-b200. dstack#3865: two
# p4d, whose EFA is v1: its cards have 100 Gbit/s, which 8 bytes do not notice.
PODS = [
    PodRow("A100 node", 2, 1, 1, None, 8, 19.9e-6, "NVIDIA/nccl-tests#150"),
    PodRow("A100 node", 2, 8, 8, "NCCL Ring", 8, 93.1e-6, "NVIDIA/nccl#812"),
    PodRow("A100 node", 3, 8, 4, None, 133_169_160, 2666.0e-6, "NVIDIA/nccl-tests#119"),
    PodRow("A100 node", 32, 8, 4, None, 8, 63.0e-6, "NVIDIA/nccl#652"),
    PodRow("H100 RoCE node", 5, 8, 4, "NCCL Ring", MIB, 354.9e-6, "NVIDIA/nccl#1368"),
    PodRow("H100 node", 16, 8, 8, None, 1024, 73.7e-6, "NVIDIA/nccl#1469"),
    PodRow("B200 EFA pod", 2, 8, 8, None, 8, 50.58e-6, "dstackai/dstack#3961"),
    PodRow("A100 node", 2, 8, 4, None, 8, 182.04e-6, "dstackai/dstack#3865", "EFA v4"),
]
