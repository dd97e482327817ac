"""Operators and communication of one rank for the ends of a model: the embedding, and the head with the loss."""

from .operators import CollectiveOp, MemoryOp
from .passes import NUMBER

WIDE = 4  # bytes of a logit in fp32

# Bytes that each operator of the loss reads and writes for a logit, forward and backward. torch: to fp32, log_softmax.
# Vocabulary-parallel: to fp32, the maximum, less that, the exponentials, their sum, divided by it, as Megatron-LM has
# it, and as this library does, whose backward computes again. Fused: a kernel reads each row twice and leaves its
# gradient in place, which backward scales (--cross-entropy-loss-fusion).
LOSS = {
    "cross_entropy": ((NUMBER + WIDE, 8), (4, 12, NUMBER + WIDE)),
    "fused": ((2 * NUMBER, NUMBER), (2 * NUMBER,)),
    "vocab_parallel": ((NUMBER + WIDE, 4, 8, 8, 4, 8), (8, NUMBER + WIDE)),
    "looked_up": ((NUMBER + WIDE, 4, 8, 8, 4, 4), (8, 8, 8, 8, NUMBER + WIDE)),
}


def embedding(block):
    """Rows are looked up, zeros elsewhere, summed up over the group, positions added, dropped. ``block``: Operators."""
    summed = [MemoryOp(2 * block.x), CollectiveOp("all-reduce", block.x)] * (block.t > 1)
    return [MemoryOp(2 * block.x), *summed, MemoryOp(3 * block.x), *[MemoryOp(2.5 * block.x)] * block.drops]


def embedding_backward(block):
    return [*block.gathered(), *[MemoryOp(2.5 * block.x)] * block.drops, MemoryOp(3 * block.x)]


def head_of(block):
    """Its columns on a rank, and their inner size."""
    return -(-block.model.vocabulary // block.t), block.model.width


def loss(block):
    """Ranks tell each other the maximum of each token, the sum, and the target's."""
    head, (each, _) = head_of(block), LOSS[block.program.loss]
    logits, tokens = block.tokens * head[0], WIDE * block.tokens
    told = [CollectiveOp("all-reduce", tokens), CollectiveOp("all-reduce", 2 * tokens)] * (block.t > 1)
    return [*block.enter(head, linear=False), *[MemoryOp(logits * nbytes) for nbytes in each], *told]


def loss_backward(block):
    head, (_, each) = head_of(block), LOSS[block.program.loss]
    logits = block.tokens * head[0]
    return [*[MemoryOp(logits * nbytes) for nbytes in each], *block.enter_backward(head, linear=False)[:-1]]
