"""Wrong answers to the exercises of 16b_context_parallel: with the property that rejects each, and what it is told."""

import torch
import torch.distributed as dist
from lab.registered import collection, solved

from tinydist.attention import attention
from tinydist.context_parallel import ring_attention

WRONG_ANSWERS, wrong = collection()


# zigzag_ring


@wrong("zigzag_ring", "own work", "tinydist.context_parallel")
def the_librarys(q, k, v):
    return ring_attention(q, k, v)


@wrong("zigzag_ring", "values", "is right")
def alone_on_each_rank(q, k, v):
    return attention(q, k, v, causal=True)


@wrong("zigzag_ring", "memory", "All keys at once are p blocks")
def gathered_at_once(q, k, v):
    """As many bytes, one step to the right after another, but all blocks are kept."""
    rank, p = dist.get_rank(), dist.get_world_size()
    blocks = [torch.stack((k, v))]
    for _ in range(p - 1):
        arriving = torch.empty_like(blocks[-1])
        send = dist.P2POp(dist.isend, blocks[-1], (rank + 1) % p)
        receive = dist.P2POp(dist.irecv, arriving, (rank - 1) % p)
        for message in dist.batch_isend_irecv([send, receive]):
            message.wait()
        blocks.append(arriving)
    chunk = q.shape[2] // 2
    owners = [(rank - step) % p for step in range(p)]
    within = torch.arange(chunk)
    starts = [(owner * chunk, (2 * p - 1 - owner) * chunk) for owner in owners]
    places = [torch.cat((first + within, last + within)) for first, last in starts]
    keys, values = torch.cat(blocks, dim=3)
    return attention(q, keys, values, mask=torch.cat(places) <= places[0][:, None])


# least_busy_layout


@wrong("least_busy_layout", "values", "a document for each rank")
def always_zigzag(documents, ranks):
    return solved("least_busy_layout")(documents, ranks) | {"best": "zig-zag"}


@wrong("least_busy_layout", "own work", "tinydist.context_parallel")
def asks_the_library(documents, ranks):
    from tinydist.context_parallel.layout import SequenceLayout

    SequenceLayout(sum(documents), 0, ranks, True).positions(0)
    return solved("least_busy_layout")(documents, ranks)


# choose_way


@wrong("choose_way", "values", "is right")
def the_papers_volume(tokens, heads, kv_heads, head_dim, ranks, flops, bandwidth, latency):
    found = solved("choose_way")(tokens, heads, kv_heads, head_dim, ranks, flops, bandwidth, latency)
    found["bytes"]["Ulysses"] = 2 * 4 * tokens * heads * head_dim / ranks
    return found


@wrong("choose_way", "values", "24 heads")
def ulysses_everywhere(*arguments):
    return solved("choose_way", "heads % ranks == 0 and ", "")(*arguments)
