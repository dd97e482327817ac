"""The gradient of Switch's balance loss, of the batch of all ranks."""

import torch
import torch.distributed as dist

from tinydist.lab.author import Bytes, Case, Values, Waits, exercise, mistake

from .chapter import BY_HAND, numbers


def case(ranks, N, E, k, dtype=torch.float64, coefficient=1.0):
    def arguments(rank):
        logits = numbers(N, E, seed=13 * rank + N, dtype=dtype) + torch.linspace(1, 0, E, dtype=dtype)
        return logits, logits.topk(k).indices, coefficient

    kind = str(dtype).removeprefix("torch.")
    return Case(ranks, arguments, f"{N} tokens a rank, {k} of {E} experts, coefficient {coefficient}, {kind}")


def test_cases():
    yield case(1, 4, 3, 1, coefficient=0.7)
    yield case(2, 3, 4, 1, coefficient=0.3)
    yield case(2, 5, 4, 2, coefficient=0.2)
    yield case(3, 4, 6, 3, torch.float32, coefficient=1.4)
    yield case(4, 2, 8, 2, coefficient=0.7)


INSIDE = "f - (f * scores).sum(-1, keepdim=True)"


@exercise(
    title="The gradient of the balance loss",
    minutes=25,
    difficulty=4,
    test_cases=test_cases,
    targets=[
        BY_HAND,
        Waits("whatever is started is waited for"),
        Values("the gradient for this rank's logits; 1, 2, 3 and 4 ranks"),
        Bytes("what one all-reduce of E numbers of 8 bytes sends, at most", room=2.0, fewer=True),
    ],
    check_communication=False,  # what is sent are whole numbers, which nothing changes on the way
    mistakes=[
        mistake(
            "f are fractions of all k N assignments, and have the sum 1: yours are k times as large",
            "load / load.sum()",
            "load / (load.sum() / chosen.shape[1])",
        ),
        mistake(
            "P is the mean over the tokens of all ranks, of which there are p times as many as of one",
            "/ (p * len(logits))",
            "/ len(logits)",
        ),
        mistake(
            "This is the gradient for the scores. Logits go through a softmax first: a larger logit also makes all "
            "other scores smaller",
            f"scores * ({INSIDE})",
            "f.expand_as(scores)",
        ),
        mistake(
            "In the gradient of the softmax the second term is missing: minus the mean of f by the token's scores",
            INSIDE,
            "f",
        ),
        mistake("The loss has a factor E, so that it is 1 for an even load", "coefficient * E", "coefficient"),
        mistake("The loss is multiplied by ``coefficient``, and so is its gradient", "coefficient * E", "E"),
    ],
    hints=[
        "The loss is coefficient E sum_i f_i P_i. f has no gradient. P_i is the mean of score i over all p N tokens.",
        "So the gradient for score i of any token is coefficient E f_i / (p N). It then passes the softmax: for a "
        "gradient g of scores s it is s (g - sum_j g_j s_j).",
        "Only f depends on other ranks: one all-reduce of the counts. (You may let autograd do the rest.)",
    ],
    why="A rank that balances its own tokens forces each sequence to use all experts; balanced over all ranks, code "
    "may go to some experts and prose to others. Qwen's team found models better with the latter, which costs a single "
    "all-reduce of E counts for each layer (Qiu et al., 2025, arXiv 2501.11873).",
)
def balance_gradient(logits, chosen, coefficient):
    """The gradient of the balance loss of all ranks' tokens together, for this rank's ``logits``: [N, E].

    The loss is coefficient E sum_i f_i P_i: f_i is the fraction of all assignments, of all ranks, that expert i gets,
    and P_i the mean over all tokens, of all ranks, of its softmax score. logits is [N, E], in float32 or float64,
    chosen [N, k] has the experts of this rank's tokens. Every rank has N tokens.
    """
    # ? f, over all ranks
    # ? the gradient for the scores, and through the softmax
    p, E = dist.get_world_size(), logits.shape[1]
    load = torch.bincount(chosen.flatten(), minlength=E)
    dist.all_reduce(load)
    f = (load / load.sum()).to(logits.dtype)
    scores = logits.softmax(-1)
    return coefficient * E / (p * len(logits)) * scores * (f - (f * scores).sum(-1, keepdim=True))
