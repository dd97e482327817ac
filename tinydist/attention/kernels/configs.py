"""Autotuning configurations (queries, keys, warps, stages) by architecture, kernel and head dim, likely best first.

Larger tiles need fewer instructions per score, until the accumulators no longer fit into the registers (255 per
thread), or the stages into shared memory. All configurations here fit, and none of the 16-bit kernels that
``compiled.py`` compiles spills: tests check this.
"""

SHARED = {80: 166_912, 86: 101_376, 90: 232_448}  # bytes of a program: A100; RTX 30 and 40; H100

# Kernel -> head dim, padded -> tiles
AMPERE = {
    "forward": {
        64: [(128, 64, 8, 3), (64, 64, 4, 3)],
        128: [(128, 64, 8, 2), (128, 32, 8, 3)],
        256: [(64, 64, 8, 2), (64, 32, 8, 2)],
    },
    "backward": {
        64: [(32, 64, 4, 2), (32, 128, 8, 2)],
        128: [(64, 64, 8, 2), (32, 64, 8, 2)],
        256: [(32, 32, 8, 2)],
    },
    "queries": {64: [(64, 64, 8, 2)], 128: [(64, 64, 8, 2)], 256: [(32, 32, 4, 2)]},
}
# The bounds of packed sequences take registers too
AMPERE_PACKED = AMPERE | {"forward": AMPERE["forward"] | {128: [(128, 32, 8, 3)]}}
# Less shared memory
ADA = AMPERE | {
    "forward": AMPERE["forward"] | {128: [(128, 32, 8, 3)], 256: [(64, 32, 8, 2)]},
    "queries": AMPERE["queries"] | {64: [(64, 32, 4, 2)]},
}
HOPPER = {
    "forward": {
        64: [(128, 128, 8, 3), (128, 64, 4, 3)],
        128: [(128, 128, 8, 2), (128, 64, 8, 3)],
        256: [(128, 64, 8, 2), (128, 32, 8, 2)],
    },
    "backward": {
        64: [(64, 128, 8, 2), (64, 64, 4, 2)],
        128: [(32, 128, 8, 2), (64, 64, 8, 2)],
        256: [(32, 32, 8, 2)],
    },
    "queries": {64: [(128, 64, 8, 2)], 128: [(128, 64, 8, 2)], 256: [(32, 32, 4, 2)]},
}
# Without descriptors, addresses do
HOPPER_WITH_POINTERS = HOPPER | {
    "forward": {64: [(128, 128, 8, 3)], 128: [(128, 64, 8, 3)], 256: [(128, 32, 8, 2)]},
    "backward": {64: [(64, 128, 8, 2)], 128: [(32, 128, 8, 2)], 256: [(32, 32, 8, 2)]},
}
FLOAT32 = {64: [(32, 32, 4, 1)], 128: [(16, 16, 4, 1)]}  # they start, no more; wider ones would not fit
WIDEST = {2: 256, 4: 128}  # head dim, by bytes per element
WIDEST_DESCRIBED = {"forward": 256, "backward": 128, "queries": 128}  # of wider heads, descriptors make spills


def configs(kind, architecture, dim, itemsize, tma, packed=False):
    """At least one. ``kind``: "forward", "backward" or "queries"; ``dim``: of a head, padded; tma: by descriptors."""
    dim = max(dim, 64)
    if itemsize == 4:
        return FLOAT32[dim]
    if architecture in (86, 89) or architecture >= 120:
        return ADA[kind][dim]
    if architecture < 90:
        return (AMPERE_PACKED if packed else AMPERE)[kind][dim]
    return (HOPPER if tma else HOPPER_WITH_POINTERS)[kind][dim]
