"""A router with a capacity, in the order of GShard: all first choices before all second ones."""

import math

import torch

from tinydist.lab.author import Part, alone, exercise, mistake

from .chapter import BY_HAND, numbers


def case(N, E, k, factor, dtype=torch.float32, preference=0.0):
    def arguments():
        logits = numbers(N, E, seed=N + E, dtype=dtype) + torch.linspace(preference, 0, E, dtype=dtype)
        return logits, k, factor

    liked = ", which prefers the first ones" if preference else ""
    kind = "" if dtype == torch.float32 else ", float64"
    return alone(arguments, f"{N} tokens, {k} of {E} experts{liked}, factor {factor:g}{kind}")


def test_cases():
    yield case(4, 2, 1, 1.0)
    yield case(8, 4, 2, 1.0)
    yield case(8, 4, 2, 1.25, preference=3.0)
    yield case(7, 3, 2, 1.0, torch.float64)
    yield case(16, 8, 3, 0.5)
    yield case(9, 4, 1, 1.5, preference=3.0)  # 3.375: up, and not to the nearest
    yield case(5, 4, 2, 4.0)
    yield case(10, 4, 4, 1.0, preference=1.0)
    yield case(64, 8, 2, 1.25, preference=2.0)


MOST = "math.ceil(factor * k * N / E)"
ORDER = "chosen.T.flatten()"
BACK = "kept = kept.view(k, N).T"
SUM = "best.values / best.values.sum(-1, keepdim=True)"


PLACE = "one_hot(flat, E).cumsum(0).gather(1, flat[:, None]).squeeze(1) - 1"


@exercise(
    title="A router with a capacity",
    minutes=25,
    difficulty=3,
    test_cases=test_cases,
    targets=[
        BY_HAND,
        Part(
            "kept",
            "kept",
            "which assignments stay: first choices before second ones, then in the order of tokens",
            variants=[
                (
                    "Each choice has the whole capacity anew. An expert takes C assignments in all: second choices "
                    "get what first ones have left",
                    PLACE,
                    "one_hot(flat.view(k, N), E).cumsum(1).gather(2, flat.view(k, N, 1)).flatten() - 1",
                ),
                (
                    "Each choice has a k-th of the capacity. An expert takes C assignments in all: second choices get "
                    "what first ones have left",
                    PLACE,
                    "one_hot(flat.view(k, N), E).cumsum(1).gather(2, flat.view(k, N, 1)).flatten() - 1",
                    "place < most",
                    "place < math.ceil(factor * N / E)",
                ),
            ],
        ),
        Part("weights", "weights", "of a token's k experts, sum 1 before any is dropped; 0 where one was"),
        Part("dropped", "dropped", "how many assignments were dropped"),
    ],
    mistakes=[
        mistake(
            "Tokens come one after the other, each with all its choices. Here all first choices come before all second "
            "ones, so that a late token's first choice is worth more than an early token's second",
            ORDER,
            "chosen.flatten()",
            BACK,
            "kept = kept.view(N, k)",
        ),
        mistake(
            "An expert keeps those with the largest scores here, as Megatron-core does. The task has first choices "
            "first, and then the order of tokens",
            ORDER,
            "chosen.flatten()[best.values.flatten().argsort(descending=True, stable=True)]",
            BACK,
            "kept = kept[best.values.flatten().argsort(descending=True, stable=True).argsort()].view(N, k)",
        ),
        mistake("Nothing was dropped: an expert takes at most C assignments", "place < most", "place < k * N"),
        mistake("The capacity is rounded up", MOST, "math.floor(factor * k * N / E)"),
        mistake(
            "There are k N assignments, and not N: an even load is k N / E for each expert",
            MOST,
            "math.ceil(factor * N / E)",
        ),
        mistake(
            "An expert takes C assignments: the one in place C, counted from 0, is over, and a whole number is not "
            "rounded up",
            "place < most",
            "place <= most",
        ),
        mistake("The weights of a token's k experts have the sum 1: divide by their sum", SUM, "best.values"),
        mistake(
            "The weights that are left have been divided by their own sum. What was dropped leaves a gap: the token "
            "gets that much less from the layer",
            "return {",
            "weights = weights / weights.sum(-1, keepdim=True).clamp(min=1e-20)\n    return {",
        ),
    ],
    hints=[
        "torch.topk gives experts in the order of scores: column 0 has the first choices of all tokens.",
        "Flatten the choices so that column 0 comes first, whole. In that list, an assignment's place is the number of "
        "those before it with the same expert.",
        "one_hot(list, E).cumsum(0) counts each expert so far, the assignment itself included.",
    ],
    why="GShard and DeepSpeed's top-2 gate count second choices behind all first ones, as here; Switch drops by "
    "position in the sequence alone, and Megatron-core those with the smallest probabilities. The same factor then "
    "drops other tokens, so a model should be evaluated with the order that it was trained with.",
)
def route_with_capacity(logits, k, factor):
    """Route each token to its best ``k`` experts by softmax, and drop what is over the capacity.

    logits is [N, E], in float32 or float64. A token's weights are its k largest scores, divided by their sum. An expert
    takes at most C = ceil(factor k N / E) assignments: first the tokens' first choices, in the order of tokens, then
    their second choices, and so on.

    Return {"kept": ..., "weights": ..., "dropped": ...}: bool [N, k], in the order of choices, best first; [N, k],
    with 0 for what is dropped, and the others as they were; and the number of assignments that are dropped.
    """
    # ? the best k of each token, and their weights
    # ? the place of each assignment in its expert's queue, first choices first
    # ? what stays
    N, E = logits.shape
    best = logits.softmax(-1).topk(k)
    chosen, weights = best.indices, best.values / best.values.sum(-1, keepdim=True)
    most = math.ceil(factor * k * N / E)
    flat = chosen.T.flatten()  # [k N]
    place = torch.nn.functional.one_hot(flat, E).cumsum(0).gather(1, flat[:, None]).squeeze(1) - 1
    kept = place < most
    kept = kept.view(k, N).T
    weights = weights * kept
    return {"kept": kept, "weights": weights, "dropped": int((~kept).sum())}
