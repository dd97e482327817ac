"""Other right answers to the exercises of 10b_flash_kernels: they must pass."""

import math

import torch
from lab.registered import others

RIGHT_ANSWERS, right = others()


@right("choose_tile")
def from_the_most_queries_down(gpu, head_dim, tokens):
    """The first number of queries with which any keys fit."""
    for queries in (1024, 512, 256, 128, 64, 32, 16):
        for keys in range(1024, 0, -16):
            in_shared = 2 * queries * head_dim + 4 * gpu.stages * keys * head_dim
            in_registers = 4 * queries * head_dim + 4 * queries * keys
            if in_shared <= gpu.shared and in_registers <= gpu.registers:
                nbytes = 2 * tokens * head_dim * (1 + 2 * math.ceil(tokens / queries))
                waits = 4 * tokens**2 * head_dim < gpu.needed * nbytes
                return {"waits": waits, "bytes": nbytes, "keys": keys, "queries": queries}


@right("choose_tile")
def room_by_division(gpu, head_dim, tokens):
    """How many keys there is room for, for each number of queries."""
    best = None
    for queries in 2 ** torch.arange(4, 11):
        room = (gpu.shared / (2 * head_dim) - queries) / (2 * gpu.stages)
        room = min(room, gpu.registers / (4 * queries) - head_dim, 1024)
        if room >= 16:
            best = int(queries), int(room // 16 * 16)
    programs = len(range(0, tokens, best[0]))
    nbytes = 2 * head_dim * tokens + programs * 2 * (2 * head_dim * tokens)
    waits = 4 * tokens**2 * head_dim / nbytes < gpu.needed
    return {"queries": best[0], "keys": best[1], "bytes": nbytes, "waits": waits}


@right("choose_tile")
def one_program_at_a_time(gpu, head_dim, tokens):
    found = {}
    for queries in (16, 32, 64, 128, 256, 512, 1024):
        for keys in range(16, 1040, 16):
            shared = 2 * head_dim * (queries + 2 * gpu.stages * keys)
            if shared <= gpu.shared and 4 * queries * (head_dim + keys) <= gpu.registers:
                found[queries] = keys
    queries = max(found)
    numbers = 0
    for start in range(0, tokens, queries):
        numbers += (min(start + queries, tokens) - start) * head_dim + 2 * tokens * head_dim
    waits = not 4 * tokens * tokens * head_dim / (2 * numbers) >= gpu.needed
    return {"queries": queries, "keys": found[queries], "bytes": 2 * numbers, "waits": waits}
