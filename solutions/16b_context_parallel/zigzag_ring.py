"""Ring attention, forward, on a zig-zag layout and with grouped heads."""

import math
from dataclasses import replace

import torch
import torch.distributed as dist

from tinydist.attention.online_softmax import finish, merge, nothing, part
from tinydist.hardware import find_cluster
from tinydist.lab.author import Bytes, Case, Memory, Own, Seconds, Values, Waits, exercise, mistake

from .chapter import SOLVED, numbers

NODE = find_cluster("A100 node")
# Matmuls alone take time, and a message takes as long as those of a step.
DEVICE = replace(NODE.device, peak={"float32": 1e9}, memory_bandwidth=1e30, launch_overhead=0.0)
EVEN = replace(NODE, device=DEVICE, intra_node=replace(NODE.intra_node, latency=0.0, bandwidth=32e6, fabric=None))

OWNER = "(rank - step) % p"
LATE = "(2 * p - 1 - owner) * chunk"
STARTED = "            messages = dist.batch_isend_irecv([send, receive])\n"
WAITED = "            for message in messages:\n                message.wait()\n"
SHARED = "block.repeat_interleave(shared, dim=2)"
PLACES = "owner * chunk, (2 * p - 1 - owner) * chunk"
HIDDEN = "scores.masked_fill(hidden, -math.inf)"


def case(ranks, heads, kv_heads, tokens, dim, measured=False):
    def arguments(rank):
        shapes = [(1, each, tokens, dim) for each in (heads, kv_heads, kv_heads)]
        return tuple(numbers(*shape, seed=10 * rank + place) for place, shape in enumerate(shapes))

    about = f"{heads} query heads, {kv_heads} KV head{'s' * (kv_heads > 1)}, {tokens} tokens each"
    return Case(ranks, arguments, about, measured)


def test_cases():
    yield case(3, 2, 2, 4, 3)
    yield case(1, 2, 1, 4, 3)
    yield case(2, 4, 2, 6, 2)
    yield case(4, 6, 3, 2, 4)
    yield case(5, 3, 1, 8, 2)
    yield case(4, 4, 2, 32, 8, measured=True)
    yield case(8, 4, 4, 16, 64, measured=True)


@exercise(
    title="A zig-zag ring",
    minutes=30,
    difficulty=4,
    test_cases=test_cases,
    targets=[
        Waits("each message is received and waited for"),
        Own("neither tinydist.context_parallel nor torch's ring", "move the blocks yourself", SOLVED),
        Values("attention of the whole sequence, on 1 to 5 ranks, with 1 to 3 KV heads"),
        Bytes("K and V of KV heads, p - 1 times from each rank to its right neighbor"),
        Memory(
            "two blocks of K and V, the one in use and the one that arrives",
            slack=lambda case: 2 * 2 * 4 * case.arguments(0)[1].numel(),
            advice="All keys at once are p blocks",
        ),
        Seconds(
            "messages travel while the matmuls run; here both take as long",
            "Start the messages before the matmuls, and wait for them after",
            room=1.1,
            clusters=lambda case: [EVEN],
        ),
    ],
    mistakes=[
        mistake(
            "In step s a rank has the block of rank - s: blocks move to the right, so they come from the left",
            OWNER,
            "(rank + step) % p",
        ),
        mistake(
            "Blocks move to the right: send to rank + 1, and receive from rank - 1",
            OWNER,
            "(rank + step) % p",
            "block, (rank + 1) % p",
            "block, (rank - 1) % p",
            "arriving, (rank - 1) % p",
            "arriving, (rank + 1) % p",
        ),
        mistake(
            "A rank's two chunks do not follow one another: the second is chunk 2p - 1 - r of 2p. Positions decide "
            "what the mask hides",
            LATE,
            "first + chunk",
        ),
        mistake(
            "These are the positions of contiguous parts. Here a rank has chunks r and 2p - 1 - r of 2p",
            PLACES,
            "2 * owner * chunk, (2 * owner + 1) * chunk",
        ),
        mistake("Nothing is hidden: a query sees no key after itself", HIDDEN, "scores"),
        mistake(
            "Query head h reads KV head h // (H/G): neighbors share one. repeat() deals them out in turn",
            SHARED,
            "block.repeat(1, 1, shared, 1, 1)",
        ),
        mistake(
            "The ring waits for the next block before it computes with this one. Wait after the matmuls",
            STARTED,
            STARTED + WAITED,
        ),
        mistake(
            "K and V are repeated for all query heads before they travel: send KV heads, and repeat what has arrived",
            "torch.stack((k, v))",
            "torch.stack((k, v)).repeat_interleave(q.shape[1] // k.shape[1], dim=2)",
            SHARED,
            "block",
        ),
    ],
    hints=[
        "Begin with the ring of the notebook: a state over no keys, p steps, a message that starts before the matmuls.",
        "Compute the positions of any rank's tokens: chunk r begins at r times its length, and so on. A key is hidden "
        "where its position is greater than the query's.",
        "K and V travel with their own heads. What has arrived can be repeated for the query heads with "
        "repeat_interleave, along the dim of the heads.",
        "part(scores, values) takes -inf for hidden scores, also for a row that sees nothing of this block; merge and "
        "finish do the rest.",
    ],
    why="This is the forward pass of ring-flash-attention and of Megatron's p2p, but for their fused kernels. Because "
    "of zig-zag, a kernel needs no mask but for the own block: of a block from the left a rank's queries see the "
    "first chunk, and of any other the second of its chunks sees all.",
)
def zigzag_ring(q, k, v):
    """Causal attention of a sequence that is sharded over all ranks, forward: this rank's part [1, H, T, d].

    q [1, H, T, d], k and v [1, G, T, d] in float32: the rank's T tokens, which are chunks r and 2p - 1 - r of 2p equal
    chunks of the sequence, one after the other. Query head h reads KV head h // (H/G). Keys and values go round a ring.
    """
    rank, p = dist.get_rank(), dist.get_world_size()
    T, d = q.shape[2:]
    chunk = T // 2

    def positions(owner):
        # ? Where in the sequence are the T tokens of rank ``owner``?
        first, last = owner * chunk, (2 * p - 1 - owner) * chunk
        within = torch.arange(chunk)
        return torch.cat((first + within, last + within))

    block = torch.stack((k, v))
    state = nothing(q, d)
    for step in range(p):
        # ? Whose block is it? Send it on, compute with it, and then take the one that has arrived.
        owner = (rank - step) % p
        if step + 1 < p:
            arriving = torch.empty_like(block)
            send = dist.P2POp(dist.isend, block, (rank + 1) % p)
            receive = dist.P2POp(dist.irecv, arriving, (rank - 1) % p)
            messages = dist.batch_isend_irecv([send, receive])
        shared = q.shape[1] // k.shape[1]  # query heads of a KV head
        keys, values = block.repeat_interleave(shared, dim=2)
        scores = q @ keys.mT / math.sqrt(d)
        hidden = positions(owner) > positions(rank)[:, None]
        state = merge(state, part(scores.masked_fill(hidden, -math.inf), values))
        if step + 1 < p:
            for message in messages:
                message.wait()
            block = arriving
    return finish(state)[0]
