"""A step whose weights are in bf16: products in 16 bits and the rest in 32, by hand, and Kahan summation after it."""

import torch
import torch.nn.functional as F
from torch.utils._python_dispatch import TorchDispatchMode

from tinydist.lab.author import Own, Target, Wrong, alone, exercise, kind, mistake

from .chapter import HERE, SOLVED, short

BAND = 0.1  # of what weights and rests move together
HALF = 0.51 * 2.0**-7  # of a power of two: half a spacing of bf16 at most
PRODUCTS = {"mm", "addmm", "bmm", "matmul", "linear"}
IN_32_BITS = {
    **dict.fromkeys(("native_layer_norm", "mean", "var", "var_mean", "rsqrt", "sqrt", "std", "square", "pow"), "norm"),
    **dict.fromkeys(("_log_softmax", "_softmax", "logsumexp", "exp", "log", "nll_loss_forward"), "loss"),
}


class Precision(TorchDispatchMode):
    """Notes the dtype in which products and what has to be exact compute."""

    def __init__(self):
        super().__init__()
        self.products, self.narrow = set(), []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        name = func.overloadpacket.__name__
        if name in PRODUCTS:
            self.products |= {each.dtype for each in args if isinstance(each, torch.Tensor) and each.dim() > 1}
        if name in IN_32_BITS and short(args):
            self.narrow.append(name)
        return func(*args, **(kwargs or {}))


def case(about, tokens, steps, lr, size=1.0):
    def given():
        generator = torch.Generator().manual_seed(tokens)
        weights = [torch.randn(shape, generator=generator).bfloat16() for shape in ((32, 16), (8, 32))]
        x = size * torch.randn(tokens, 16, generator=generator)
        return weights, x, torch.randint(8, (tokens,), generator=generator), lr, steps

    return alone(given, about, how={"observe": False})


def test_cases():
    yield case("one step", 24, 1, lr=0.5)
    yield case("200 steps, most updates below half a spacing", 24, 200, lr=2.0**-9)
    yield case("a single token", 1, 40, lr=2.0**-6)
    yield case("no step at all: a rate of zero", 24, 3, lr=0.0)
    yield case("large inputs", 48, 40, lr=2.0**-6, size=1000.0)


def train(answer, weights, x, targets, lr, steps):
    """How far weights and rests have moved together, the rests in units of their weights, losses, are the weights what
    they were, dtypes."""
    weights = [weight.requires_grad_() for weight in weights]
    rests = [torch.zeros_like(weight, requires_grad=False) for weight in weights]
    start, losses, precision = flat(weights), [], Precision()
    for _ in range(steps):
        with precision:
            loss = answer(weights, rests, x.clone(), targets, lr)
        if not isinstance(loss, torch.Tensor) or loss.dim():
            raise Wrong(f"it returned {kind(loss)}, where the loss is right, a tensor of one number")
        if loss.dtype != torch.float32:
            raise Wrong(f"the loss is {str(loss.dtype).removeprefix('torch.')}, where float32 is right")
        losses.append(loss.item())
    power = 2.0 ** (torch.frexp(flat(weights)).exponent - 1)
    still = torch.equal(flat(weights), start)
    return flat(weights) + flat(rests) - start, (flat(rests).abs() / power).max().item(), losses, still, precision


def flat(tensors):
    return torch.cat([each.detach().flatten().double() for each in tensors])


class Dtypes(Target):
    """Read off the operators."""

    decides, name = True, "autocast"

    def seen(self, trial):
        if trial.error is not None:
            return None
        *_, precision = trial.returned[0]
        return precision.products, precision.narrow

    def judge(self, exercise, trial, right):
        *_, precision = trial.returned[0]
        wide = precision.products - {torch.bfloat16}
        if wide:
            dtype = str(wide.pop()).removeprefix("torch.")
            raise Wrong(f"a product takes {dtype} numbers, where tensor cores are to get bfloat16")
        for name in precision.narrow[:1]:
            raise Wrong(
                f"{name} takes bfloat16 numbers: the {IN_32_BITS[name]} needs float32, so cast before it: .float()"
            )


class Losses(Target):
    decides, name = True, "loss"

    def judge(self, exercise, trial, right):
        mine, its = trial.returned[0][2][0], right.returned[0][2][0]
        if not abs(mine - its) <= 0.01 * its:
            raise Wrong(f"the first loss is {mine:.4g}, where {its:.4g} is right, within 1 %{otherwise(mine, trial)}")


def otherwise(loss, trial):
    """What gives this loss."""
    (first, second), x, targets, *_ = trial.case.arguments(0)
    hidden = x @ first.detach().float().T
    normal = F.layer_norm(hidden, (32,))

    def of(normal, **how):
        return F.cross_entropy(normal @ second.detach().float().T, targets, **how).item()

    ways = {
        ", as without the norm": of(hidden),
        ", as with a norm over the tokens: it is over the 32 numbers of each token": of(
            F.layer_norm(hidden.T, (len(x),)).T
        ),
        ", the sum over the tokens: it should be their mean": of(normal, reduction="sum"),
        ", as with something between the products that is not in the task": of(normal.relu()),
    }
    return next((words for words, each in ways.items() if abs(loss - each) < 0.01 * abs(each)), "")


class Sums(Target):
    decides, name = True, "Kahan"

    def seen(self, trial):
        return None if trial.error is not None else trial.returned[0][:2]

    def alike(self, mine, other, right):
        (moved, rest), (its, its_rest) = mine, other
        return 2 * (torch.allclose(moved, its, 1e-3, 1e-5, equal_nan=True) and (rest <= HALF) == (its_rest <= HALF))

    def judge(self, exercise, trial, right):
        (mine, rest, _, still, _), (its, _, _, still_right, _) = trial.returned[0], right.returned[0]
        if still and not still_right:
            raise Wrong(
                "the weights are what they were: write into them, weight.copy_(...). `weight = ...` is another tensor"
            )
        if not mine.isfinite().all():
            raise Wrong("weights or rests are inf or NaN")
        if not (mine - its).norm() <= BAND * its.norm():
            ratio, elsewhere = (mine @ its / (its @ its)).item(), ", and in another direction"
            raise Wrong(
                f"weights and rests together move {ratio:.2g} times as far as they should"
                f"{elsewhere if (mine - ratio * its).norm() > BAND * its.norm() else why(trial, ratio)}"
            )
        if not rest <= HALF:
            raise Wrong(
                "a rest is larger than half a spacing of its weight: what is that large belongs into the weight"
            )


def why(trial, ratio):
    """What has that ratio."""
    *_, lr, _ = trial.case.arguments(0)
    reasons = {
        lr: f". The rate is {lr:g}: it counts twice",
        1 / lr: f". The rate is {lr:g}: it does not count",
        -1.0: ", the wrong way: SGD subtracts lr times the gradient",
        2.0: ". What a step adds is in the weights and in the rests, or the gradient counts twice",
    }
    return next((words for times, words in reasons.items() if abs(ratio - times) < 0.02 * abs(times)), "")


@exercise(
    title="Sixteen bits, and nothing lost",
    minutes=25,
    difficulty=2,
    test_cases=test_cases,
    program=train,
    targets=[
        Own(
            "neither torch's autocast nor the library's", HERE, {**SOLVED, "torch.amp.autocast_mode": "torch.autocast"}
        ),
        Dtypes("every product takes bfloat16, forward and backward; the norm and the loss take float32"),
        Losses("that of the first step, within 1 %, in float32"),
        Sums("after 1 to 200 steps weights and rests have moved as far as exact weights would, within 10 %"),
    ],
    mistakes=[
        mistake(
            "The input is not cast: in float32 the product would get nothing of the tensor cores' rate",
            "x.bfloat16() @ weights[0].T",
            "x @ weights[0].float().T",
        ),
        mistake(
            "The norm gets what the product gave, in bfloat16. Cast it to float32 first",
            "F.layer_norm(hidden.float(), (32,))",
            "F.layer_norm(hidden, (32,))",
        ),
        mistake(
            "The loss gets logits in bfloat16. Its exponentials need float32",
            "F.cross_entropy(logits.float(), targets)",
            "F.cross_entropy(logits, targets).float()",
        ),
        mistake(
            "What the last rounding left over is not added: then most updates are swallowed",
            "weight.float() + rest.float() - lr",
            "weight.float() - lr",
        ),
        mistake(
            "The rest has the wrong sign. It is what is missing from the weight: the exact sum less the rounded one",
            "rest.copy_(exact - weight)",
            "rest.copy_(weight - exact)",
        ),
        mistake(
            "The old rest is left out of the new one: it is the exact sum, of weight, old rest and update, less the "
            "rounded one",
            "rest.copy_(exact - weight)",
            "rest.copy_(exact - rest.float() - weight)",
        ),
        mistake(
            "Nothing is kept of what rounding leaves over: either the rests are never written, or the sum is made in "
            "bfloat16, where the update is swallowed first. Add up in float32",
            "exact = weight.float() + rest.float() - lr * gradient.float()",
            "exact = (weight + (rest - lr * gradient)).float()",
        ),
        mistake(
            "The weights stay what they were, and the rests hold everything. Round the sum into the weight first",
            "            weight.copy_(exact)  # rounds\n",
            "",
        ),
    ],
    hints=[
        "x is float32, and so is what a norm returns. What is a product to get? And in which dtype does it answer?",
        "Four casts make the forward pass: x and the norm's result to bfloat16, the norm's input and the logits "
        "to float32. torch.autograd.grad(loss, weights) gives the gradients.",
        "Kahan: exact = weight + rest - lr * gradient, all in float32, in torch.no_grad(). Write it into the weight "
        "with copy_, which rounds. What is the rest now?",
    ],
    why="The weights take 4 bytes with their rests, where a master weight and its copy take 6. And no operator had to "
    "be told that the model is in bf16: a cast before each is all that autocast does, too.",
)
def kahan_step(weights, rests, x, targets, lr):
    """Make one step of SGD with weights in bf16, in place. Return the loss, in float32.

    The model is cross_entropy(layer_norm(x w0^T) w1^T), with w0 [32, 16] and w1 [8, 32] in ``weights``, ``x`` float32
    [tokens, 16], and ``targets`` [tokens]. By the rules of autocast products take bfloat16, the norm and the loss take
    float32. ``rests``, bf16 as well, hold what rounding has left over so far. Update weights and rests by Kahan
    summation: over many steps nothing of an update may be lost.
    """
    # ? The forward pass: what does each operator get?
    hidden = x.bfloat16() @ weights[0].T
    normal = F.layer_norm(hidden.float(), (32,))
    logits = normal.bfloat16() @ weights[1].T
    loss = F.cross_entropy(logits.float(), targets)
    # ? Update each weight, and keep what rounding leaves over.
    gradients = torch.autograd.grad(loss, weights)
    with torch.no_grad():
        for weight, rest, gradient in zip(weights, rests, gradients):
            exact = weight.float() + rest.float() - lr * gradient.float()
            weight.copy_(exact)  # rounds
            rest.copy_(exact - weight)
    return loss.detach()
