"""Other right answers to the exercises of 21_quantization: they must pass."""

import itertools
import struct

import torch
from lab.registered import others

RIGHT_ANSWERS, right = others()


@right("three_bit_blocks")
def bit_by_bit(x):
    """Loops, in Python."""
    found = []
    for row in x:
        largest = max(row.tolist(), key=abs)
        d = torch.tensor(largest) / -4
        codes = [min(int(number / d + 4.5), 7) if largest else 4 for number in row]
        low, high = [0] * 8, [0] * 4
        for place, code in enumerate(codes):
            low[place % 8] |= (code & 3) << 2 * (place // 8)
            high[place // 8] |= (code >> 2) << place % 8
        found.append([*struct.pack("<e", d.item()), *low, *high])
    return torch.tensor(found, dtype=torch.uint8)


@right("products_with_offset")
def pair_by_pair(q_x, d_x, q_w, d_w, m_w):
    (M, B, _), N = q_x.shape, len(q_w)
    sums, y = torch.zeros(M, N, B, dtype=torch.int32), torch.zeros(M, N)
    for m, n, b in itertools.product(range(M), range(N), range(B)):
        sums[m, n, b] = (q_x[m, b].int() * q_w[n, b].int()).sum()
        y[m, n] += d_x[m, b] * (d_w[n, b] * sums[m, n, b] + m_w[n, b] * q_x[m, b].int().sum())
    return sums, y


@right("gptq_in_order")
def by_elimination(w, G, step):
    """The inverse of what is left of G, column by column, as in Optimal Brain Quantization."""
    w, left, found = w.clone(), G.diagonal().argsort(descending=True).tolist(), w.clone()
    while left:
        inverse = torch.linalg.inv(G[left][:, left])
        first = left[0]
        found[first] = (w[first] / step).round() * step
        w[left] -= (w[first] - found[first]) / inverse[0, 0] * inverse[0]
        left = left[1:]
    return found
