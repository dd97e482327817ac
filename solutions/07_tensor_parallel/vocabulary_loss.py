"""Cross-entropy of logits of which each rank has those of a part of the vocabulary."""

import torch
import torch.distributed as dist

from tinydist.lab.author import Bytes, Case, Memory, Values, also, exercise, mistake

from .chapter import BY_HAND, gradients, leaf, noted, numbers, part_of_a_graph

SCALE = 3.0  # of the loss, before backward
TOKENS, VOCABULARY = 64, 512
LARGE = 4 * TOKENS * VOCABULARY // 2  # bytes of a rank's logits
LARGEST = "            dist.all_reduce(largest, dist.ReduceOp.MAX)\n"
SUMS = "            dist.all_reduce(sums)\n"
OWN_LARGEST = (
    "Each rank has subtracted the largest of its own logits: then the sums of exponentials do not fit together. Take "
    "the largest of all ranks"
)
ONE_BY_ONE = SUMS.replace("sums", "sums[0]") + SUMS.replace("sums", "sums[1]")
SHIFTED = (  # the target's logit less the largest, as Megatron-LM sends it
    "torch.where(here, found, 0)",
    "torch.where(here, found - largest, 0)",
    "(log_sum - sums[1])",
    "(sums[0].log() - sums[1])",
)


def case(ranks, tokens, vocabulary, spread=1.0, dtype=torch.float32, measured=False):
    def arguments(rank):
        logits = numbers(tokens, vocabulary // ranks, seed=10 * tokens + rank, dtype=dtype).mul_(spread)
        targets = torch.randint(vocabulary, (tokens,), generator=torch.Generator().manual_seed(tokens))
        return leaf(logits), targets

    kind = "" if dtype == torch.float32 else ", float64"
    wide = f", logits up to some {4 * spread:.0f}" if spread > 1 else ""
    return Case(ranks, arguments, f"{tokens} tokens of {vocabulary}{wide}{kind}", measured)


def test_cases():
    yield case(2, 5, 8)
    yield case(3, 4, 9)
    yield case(2, 6, 10, spread=100.0)
    yield case(4, 7, 12, dtype=torch.float64)
    yield case(1, 3, 5)
    yield case(2, TOKENS, VOCABULARY, measured=True)


def train(answer, logits, targets):
    loss = part_of_a_graph(answer(logits, targets), [], "it")
    (SCALE * loss).backward()
    return {"the loss": noted(loss)} | gradients({"logits": logits})


def by_what(trial, got, want, own, pick):
    """Is it the loss with another shift, or with other logits for the targets?"""
    losses = torch.stack([each["the loss"].detach() for each in trial.returned])
    parts = [trial.case.arguments(rank)[0].detach() for rank in range(trial.case.ranks)]
    targets, size, tokens = trial.case.arguments(0)[1], parts[0].shape[1], range(len(parts[0]))
    if not losses.isfinite().all():
        return "exp overflows, or all exps are 0: subtract the largest logit of all ranks, with dist.ReduceOp.MAX"
    tops, place = torch.stack([part.amax(1) for part in parts]), targets % size
    own_tops = sum((part - top[:, None]).exp().sum(1) for part, top in zip(parts, tops)).log()
    log_sum, found = torch.cat(parts, 1).logsumexp(1), torch.cat(parts, 1)[tokens, targets]
    looks = [
        (log_sum - found, None),  # it is right, and the gradient is not
        (own_tops - found + tops[targets // size, tokens], OWN_LARGEST),
    ]
    for shift in (0, tops.amax(0)):  # some subtract it from the target's logit as well
        every = sum(part[tokens, place] - shift for part in parts)
        looks.append((log_sum - shift - every, "A target counts on the rank that has it, and on no other"))
        mine = (found - shift) * (place < size - 1)
        looks.append((log_sum - shift - mine, "A rank's last token, (r + 1) V/t - 1, is in its part, too"))
    right = log_sum - found
    looks.append((right * len(parts[0]), "This is the sum over the tokens, where their mean is asked for"))
    looks.append((-right, "The loss is log(sum of exp z) - z[target], and this has the other sign"))
    looks.append((right - tops.amax(0), "The largest logit that was subtracted has to come back: log(sum) + largest"))
    looks.append((log_sum, "The logit of the target is missing: it is subtracted"))
    if torch.isclose(losses[0], right.mean(), rtol=1e-4):
        return of_gradient(got, want, parts, targets)
    return next((words for loss, words in looks if torch.isclose(losses[0], loss.mean(), rtol=1e-4)), None)


def of_gradient(got, want, parts, targets):
    """What is wrong in the gradient, where the loss is right; without the factor that all of it has."""
    if got[0].shape != parts[0].shape:
        return None
    tokens = len(targets)
    mine, its = (torch.cat([each.double() for each in some], 1) * tokens / SCALE for some in (got, want))
    off, of_own = mine - its, torch.cat([part.double().softmax(1) for part in parts], 1)
    ones = torch.nn.functional.one_hot(targets, its.shape[1]).to(its)
    at = dict(rtol=1e-3, atol=1e-3)
    if torch.allclose(mine, of_own - ones, **at) and len(parts) > 1:
        return "This is softmax over the own part: its denominator is the sum over all ranks"
    if torch.allclose(off, off.round(), **at) and off.round().abs().max() == 1:
        if (off.round() == -1).any() and (off.round() >= -1).all() and not (off.round() == 1).any():
            return (
                "1 is taken off at places that are not the target's: where the target is on another rank, this one "
                "takes nothing off"
            )
        if (off.round() == -1).any():
            return "1 is taken off at a wrong place: at the target, counted from the first token of the own part"
        return "This is softmax, where 1 must be taken off at the target, also if that is first or last in a part"
    if torch.allclose(off, ones * 2, **at):
        return "1 is added at the target, where it must be taken off"
    return None


@exercise(
    title="Cross-entropy without all logits",
    minutes=30,
    difficulty=4,
    test_cases=test_cases,
    program=train,
    targets=[
        *BY_HAND,
        Values(
            "the loss, on all ranks, and the gradient of the own logits; 1, 2, 3 and 4 ranks",
            scratch=True,
            explain=[by_what],
        ),
        Bytes("all-reduces of three numbers a token, forward; nothing backward"),
        Memory(
            "one tensor of the size of the rank's logits besides their gradient; one more is granted",
            slack=LARGE + 16 * TOKENS,  # and a few numbers a token
            advice="Autograd keeps what each operator needs. A Function of your own saves the logits and one number a "
            "token, and computes softmax again in backward, in place",
        ),
    ],
    mistakes=[
        mistake(
            OWN_LARGEST,
            LARGEST,
            "",
        ),
        mistake(
            "exp overflows: subtract each token's largest logit, of all ranks, before",
            "largest = logits.amax(1)",
            "largest = logits.new_zeros(len(logits))",
        ),
        mistake(
            "Targets are tokens of the whole vocabulary: on rank r, row 0 of the own part is token r V/t",
            "targets - dist.get_rank() * size",
            "targets + 0",
        ),
        mistake(
            "Where a target is on another rank this one adds nothing to the target's logit",
            "torch.where(here, found, 0)",
            "found",
        ),
        mistake("The sums are of this rank's part of the vocabulary alone", SUMS, ""),
        mistake(
            "This is softmax: at the target, on the rank that has it, the gradient is less by one",
            "            chances[here, rows[here]] -= 1\n",
            "",
        ),
        mistake(
            "The loss is a mean over tokens, and so is the gradient",
            "gradient / len(targets)",
            "gradient",
        ),
        mistake(
            "backward gets the gradient of the loss, which is not 1 here: multiply by it",
            "gradient / len(targets)",
            "1 / len(targets)",
        ),
    ],
    alternatives=[
        also(SUMS, ONE_BY_ONE),
        also(*SHIFTED),
        also(*SHIFTED, SUMS, ONE_BY_ONE),
    ],
    hints=[
        "loss = log(sum of exp z) - z[target]. What of that does a rank not know, of a token? Three numbers.",
        "The largest logit is an all-reduce with dist.ReduceOp.MAX. The other two are sums, and may travel together.",
        "The gradient of z is softmax, and one less at the target. exp(z - log of the sum) is softmax: save the logits "
        "and that logarithm, and nothing else of their size.",
    ],
    why="With 128,256 tokens in the vocabulary, as in Llama 3, all logits of 8,192 tokens take 4.2 GB in fp32. Now a "
    "rank sends three numbers a token. Megatron-LM calls this vocab_parallel_cross_entropy, PyTorch loss_parallel.",
)
def vocabulary_loss(logits, targets):
    """Return the mean cross-entropy, on every rank, where a rank has the logits of its part of the vocabulary.

    ``logits`` [N, V/t]: rank r has those of the tokens r V/t to (r + 1) V/t - 1. ``targets`` [N]: tokens of the whole
    vocabulary, the same on all ranks. ``logits`` gets the gradient that it has in the cross-entropy of all logits.
    """

    class Loss(torch.autograd.Function):
        @staticmethod
        def forward(ctx, logits):
            # ? Which three numbers a token must all ranks know?
            size = logits.shape[1]
            largest = logits.amax(1)
            dist.all_reduce(largest, dist.ReduceOp.MAX)
            rows = targets - dist.get_rank() * size
            here = (rows >= 0) & (rows < size)
            found = logits.gather(1, rows.clamp(0, size - 1)[:, None])[:, 0]
            sum_of_exps = (logits - largest[:, None]).exp_().sum(1)
            sums = torch.stack([sum_of_exps, torch.where(here, found, 0)])
            dist.all_reduce(sums)
            log_sum = sums[0].log() + largest
            ctx.save_for_backward(logits, log_sum, rows, here)
            return (log_sum - sums[1]).mean()

        @staticmethod
        def backward(ctx, gradient):
            # ? Softmax, and one less at the target.
            logits, log_sum, rows, here = ctx.saved_tensors
            chances = (logits - log_sum[:, None]).exp_()
            chances[here, rows[here]] -= 1
            return chances.mul_(gradient / len(targets))

    return Loss.apply(logits)
