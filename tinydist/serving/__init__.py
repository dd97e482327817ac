"""Serving: LLM inference with a paged KV cache, continuous batching and an OpenAI-compatible HTTP API.

    request.py              requests, sampling parameters, and their sequences
    blocks.py               the KV cache in blocks: reference counts, copy on write, prefix cache
    paged_attention.py      attention over keys and values in blocks
    paged_cache.py          the paged KV cache, and forward passes over a flattened batch
    scheduler.py            continuous batching: which sequences are in the next pass, with how many tokens
    contiguous_batching.py  before paging: static batches, Orca
    sampling.py             the next token: temperature, top-k, top-p
    engine.py               the inference engine
    trace.py                synthetic request traces with published length statistics
    execution.py            what starting kernels costs: eager, compiled, CUDA graphs
    clock.py                cost model of a forward pass
    replay.py               simulates serving a trace; KV-cache fragmentation
    speculative.py          speculative decoding with a draft model
    parallel.py             tensor-parallel inference; a router over replicas
    completions.py          OpenAI's completions API
    http_server.py          the HTTP server (Tornado); not imported by default; command.py: tinydist serve

In reading order.
"""

from .blocks import BlockPool, BlockTable, OutOfBlocks
from .clock import StepCost
from .contiguous_batching import Orca, StaticBatching
from .engine import LLMEngine
from .paged_attention import paged_attention
from .paged_cache import PagedCaches
from .parallel import Replicas, bytes_sent_per_token, tensor_parallel_engine
from .replay import Replay, expected_waste, memory_of, replay, waste_in_blocks
from .request import Request, RequestState, Sequence
from .scheduler import ContinuousBatching, Scheduler, SchedulerOutput, SchedulingPolicy
from .speculative import expected_tokens, speculate, speedup, verify
from .trace import ALPACA, SHAREGPT, Lengths, TraceRequest, make_trace

__all__ = [
    "ALPACA",
    "SHAREGPT",
    "BlockPool",
    "BlockTable",
    "ContinuousBatching",
    "LLMEngine",
    "Lengths",
    "Orca",
    "OutOfBlocks",
    "PagedCaches",
    "Replay",
    "Replicas",
    "Request",
    "RequestState",
    "Scheduler",
    "SchedulerOutput",
    "SchedulingPolicy",
    "Sequence",
    "StaticBatching",
    "StepCost",
    "TraceRequest",
    "bytes_sent_per_token",
    "expected_tokens",
    "expected_waste",
    "make_trace",
    "memory_of",
    "paged_attention",
    "replay",
    "speculate",
    "speedup",
    "tensor_parallel_engine",
    "verify",
    "waste_in_blocks",
]
