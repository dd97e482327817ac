"""From how many tokens on does a stage of ZeRO hide what it sends: each pass behind itself."""

import math

from tinydist.lab.author import Own, Varied, alone, exercise, mistake

A100, H100 = 150e12, 400e12  # FLOP/s that a step reaches


def case(about, *arguments):
    return alone(lambda: arguments, about)


def test_cases():
    #                            zero ranks recomputes gradient_bytes flops bandwidth
    yield case("ZeRO 3 on 64 GPUs", 3, 64, False, 2, A100, 45e9)
    yield case("ZeRO 3 on 64 GPUs, gradients in fp32", 3, 64, False, 4, A100, 45e9)
    yield case("the same, all recomputed", 3, 64, True, 4, A100, 45e9)
    yield case("DDP on 64 GPUs, gradients in fp32", 0, 64, False, 4, A100, 45e9)
    yield case("DDP on 8 GPUs, gradients in bf16", 0, 8, False, 2, A100, 230e9)
    yield case("ZeRO 1 on 64 GPUs, gradients in bf16", 1, 64, False, 2, A100, 45e9)
    yield case("ZeRO 1 on 64 GPUs, gradients in fp32, all recomputed", 1, 64, True, 4, A100, 45e9)
    yield case("ZeRO 2 on 512 GPUs, gradients in fp32", 2, 512, False, 4, H100, 370e9)
    yield case("ZeRO 3 on two GPUs, gradients in fp32", 3, 2, False, 4, H100, 20e9)
    yield case("ZeRO 3 on two GPUs, gradients in bf16, all recomputed", 3, 2, True, 2, H100, 20e9)
    yield case("DDP on 16 GPUs, gradients in fp32, all recomputed", 0, 16, True, 4, A100, 45e9)
    yield case("one GPU", 3, 1, False, 4, H100, 20e9)


FORWARD = "forward = 2 * part if zero else 0"
REDUCED = "backward = (2 if zero == 0 else 1) * gradient_bytes * part"
AGAIN = "    if zero == 3:\n        backward += 2 * part\n"
LONGEST = "longest = max(forward / 2, backward / (6 if recomputes else 4))"


@exercise(
    title="How many tokens hide ZeRO?",
    minutes=20,
    difficulty=3,
    test_cases=test_cases,
    targets=[
        Varied(
            "the fewest tokens, for ZeRO 0 to 3, 1 to 512 GPUs, with and without recomputation",
            variants=[
                (
                    "Backward has 4 FLOPs for each parameter and token, twice as many as forward, and 6 with "
                    "recomputation",
                    "(6 if recomputes else 4)",
                    "(4 if recomputes else 2)",
                ),
                (
                    "It is as if forward had half of its FLOPs, or weights twice their bytes: 2 FLOPs for each "
                    "parameter and token, and 2 bytes for each weight",
                    "forward / 2",
                    "forward",
                ),
                (
                    "Forward has 2 FLOPs for each parameter and token, and backward has 4",
                    "forward / 2",
                    "forward / 6",
                    "(6 if recomputes else 4)",
                    "6",
                ),
                (
                    "Recomputation gathers no weights once more: those that backward gathers are there for it",
                    AGAIN,
                    AGAIN.replace("2 * part", "(4 if recomputes else 2) * part"),
                ),
                (
                    "The numbers of tokens of both passes are added up. Each pass hides what is sent in it: the larger "
                    "number counts",
                    LONGEST,
                    LONGEST.replace("max(forward / 2, ", "(forward / 2 + "),
                ),
                (
                    "Weights are gathered in backward by ZeRO 3 alone: 1 and 2 keep them",
                    AGAIN,
                    AGAIN.replace("== 3", ">= 1"),
                ),
                ("Gradients have gradient_bytes bytes each", REDUCED, REDUCED.replace("gradient_bytes", "2")),
                ("Gradients have gradient_bytes bytes each", REDUCED, REDUCED.replace("gradient_bytes", "4")),
                (
                    "What forward sends is left out: it needs tokens, too",
                    LONGEST,
                    LONGEST.replace("max(forward / 2, ", "("),
                ),
                ("What backward sends is left out: it needs tokens, too", LONGEST, "longest = forward / 2"),
                ("It is not rounded up: with one token less it waits", "math.ceil(", "round("),
                (
                    "With ZeRO gradients are reduce-scattered: an all-reduce sends twice as much",
                    REDUCED,
                    REDUCED.replace("(2 if zero == 0 else 1)", "2"),
                ),
                (
                    "ZeRO 1 reduce-scatters its gradients as well: each rank needs its part alone",
                    REDUCED,
                    REDUCED.replace("zero == 0", "zero <= 1"),
                ),
                (
                    "A rank sends (d - 1)/d of the bytes, and not (d - 1) times: tokens and parameters are per GPU",
                    "part = (ranks - 1) / ranks",
                    "part = ranks - 1",
                ),
                (
                    "Where nothing is sent, no pass waits, with 0 tokens, too",
                    "return math.ceil(longest * flops / bandwidth)",
                    "return max(1, math.ceil(longest * flops / bandwidth))",
                ),
            ],
        ),
        Own("your own arithmetic", "it is arithmetic", ["tinydist.planner", "tinydist.hardware"]),
    ],
    mistakes=[
        mistake(
            "This takes both passes as one. What forward sends cannot hide behind backward, so each pass needs its own "
            "tokens, and the larger number counts",
            LONGEST,
            "longest = (forward + backward) / (8 if recomputes else 6)",
        ),
        mistake(
            "An all-reduce is a reduce-scatter and an all-gather: without ZeRO each rank sends the gradients twice",
            REDUCED,
            "backward = gradient_bytes * part",
        ),
        mistake(
            "What is recomputed is computed in backward: 2 more FLOPs per parameter and token, behind which more hides",
            "6 if recomputes else 4",
            "4",
        ),
        mistake(
            "Of d ranks each has 1/d already: (d - 1)/d of the bytes are sent, and nothing on one GPU",
            "part = (ranks - 1) / ranks",
            "part = 1",
        ),
        mistake(
            "ZeRO 3 gathers the weights in backward, too: after forward it has freed them",
            AGAIN,
            "",
        ),
        mistake(
            "ZeRO 1 and 2 gather the weights as well, once in each step: during forward",
            FORWARD,
            "forward = 2 * part if zero == 3 else 0",
        ),
        mistake(
            "Weights are gathered in 16 bits, 2 bytes each, in whatever format gradients are",
            FORWARD,
            "forward = gradient_bytes * part if zero else 0",
        ),
        mistake("With one token less it waits: round up", "math.ceil(", "int("),
    ],
    hints=[
        "Take one parameter. How many bytes does a rank send for it in forward, how many in backward? How many FLOPs "
        "per token are there in each pass?",
        "A pass with T tokens computes for FLOPs x T / flops seconds, and sends for bytes / bandwidth seconds. Both "
        "are multiples of the number of parameters, which cancels.",
        "Forward: 2 FLOPs, backward: 4, or 6 with recomputation. The all-gather of ZeRO 3 is in both passes; an "
        "all-reduce has twice the bytes of a reduce-scatter. Take the larger of both numbers of tokens.",
    ],
    why="Below this number a GPU more makes a step no faster, and tensor parallelism becomes the better plan. Measured "
    "crossovers of ZeRO 3 lie between 2,048 and 8,192 tokens per GPU, as software reaches more or less of its wires.",
)
def tokens_for_zero(zero, ranks, recomputes, gradient_bytes, flops, bandwidth):
    """Return the fewest tokens of a microbatch per GPU, an int, with which no pass waits for what it sends (0 where
    nothing is sent).

    Data parallelism of stage ``zero`` (0 to 3) over ``ranks`` GPUs. Weights are in 16 bits; gradients, of
    ``gradient_bytes`` bytes each, are reduced in backward. ZeRO 1 and 2 gather the weights during forward. Each pass
    hides what is sent in it, and nothing else. ``recomputes``: backward runs forward once more. A GPU computes
    ``flops`` FLOP/s and sends ``bandwidth`` bytes per second; the FLOPs of attention and of the optimizer are left out.
    """
    # ? How many bytes are sent per parameter, and how many FLOPs are there per parameter and token, in each pass?
    part = (ranks - 1) / ranks
    forward = 2 * part if zero else 0
    backward = (2 if zero == 0 else 1) * gradient_bytes * part
    if zero == 3:
        backward += 2 * part
    longest = max(forward / 2, backward / (6 if recomputes else 4))
    return math.ceil(longest * flops / bandwidth)
