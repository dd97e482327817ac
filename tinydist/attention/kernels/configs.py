"""Which tiles are tried: (queries, keys, warps, stages), for each kernel, architecture and head dim."""

FORWARD = {}


def configs(kernel, capability, dim, itemsize, tma):
    return [(64, 64, 4, 2), (32, 64, 4, 2)]
