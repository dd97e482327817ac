"""The bytes of a model's cache: made layer by layer on fake tensors, and counted by the ledger."""

from functools import cache
from typing import NamedTuple

import torch

from ....attention import KVCache
from ....launch import launch

DTYPES = {"fp32": torch.float32, "fp16": torch.float16, "fp8": torch.float8_e4m3fn}


class Model(NamedTuple):
    name: str
    layers: int
    hidden: int  # width, of all query heads together
    heads: int  # of queries
    kv_heads: int  # of keys and values
    dtype: str = "fp16"  # of what is kept

    @property
    def head_dim(self):
        return self.hidden // self.heads


def measured(model, tokens):
    """Bytes of the caches of all layers, for one sequence."""
    return launched(model, tokens)


@cache
def launched(model, tokens):

    def program():
        return [KVCache(1, model.kv_heads, tokens, model.head_dim, DTYPES[model.dtype]) for _ in range(model.layers)]

    run = launch(program, 1, backend="simulated", fake=True)
    *_, (_, held) = run.memory[0].over_time()
    return sum(held.values())
