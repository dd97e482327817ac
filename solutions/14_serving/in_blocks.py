"""Keys and values that lie in blocks, and what a step of decoding leaves in them."""

import torch

from tinydist.lab.author import Wrong, alone, kind

LOW, HIGH = -1e12, 1e3  # scores


def step(about, size, lengths, *, d=4, e=4, window=10**6, common=0, spare=0, score=None, dtype=torch.float32, **more):
    """Sequences whose blocks lie in any order; the first ``common`` are everybody's, ``spare`` are for later tokens.
    What no token has written is large, so that reading it shows. ``score``: of each new token with itself."""
    generator = torch.Generator().manual_seed(sum(lengths) + size)
    needed = [n // size + 1 + spare for n in lengths]
    blocks = 1 + sum(needed)
    order = torch.randperm(blocks, generator=generator).tolist()
    first = [order.pop() for _ in range(common)]
    tables = [first + [order.pop() for _ in range(count - common)] for count in needed]
    made = [10 * torch.randn(blocks, size, width, generator=generator, dtype=dtype) for width in (d, e)]
    for table, n in zip(tables, lengths):
        for at in range(n):
            for each in made:
                each[table[at // size], at % size] /= 10
        gone = max(0, n + 1 - window) // size
        table[:gone] = [None] * gone
    q, k, v = (torch.randn(len(lengths), width, generator=generator, dtype=dtype) for width in (d, d, e))
    if score:
        q = score * d**0.5 * k / (k * k).sum(-1, keepdim=True)
    given = q, k, v, *made

    def arguments():
        return *(each.clone() for each in given), [[*table] for table in tables], [*lengths], window

    return alone(arguments, about, **more)


def decoded(answer, q, k, v, keys, values, tables, lengths, window):
    out = answer(q, k, v, keys, values, tables, lengths, window)
    shape = [len(q), values.shape[2]]
    if not isinstance(out, torch.Tensor) or [*out.shape] != shape:
        raise Wrong(f"{kind(out)} came back, where a tensor [B, e], of shape {shape}, is right")
    return {"keys [blocks, size, d]": keys, "values [blocks, size, e]": values, "the result [B, e]": out}
