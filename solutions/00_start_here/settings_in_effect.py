"""What the settings of an optimizer become where gradients have a wrong factor."""

from math import isclose

from tinydist.lab.author import Values, alone, exercise, mistake


def setting(optimizer, factor, learning_rate, clip, weight_decay, eps):
    return alone(
        lambda: (optimizer, factor, learning_rate, clip, weight_decay, eps),
        f"{optimizer}, gradients {factor:g} times as long, learning rate {learning_rate}, clipping at {clip}, "
        f"weight decay {weight_decay}, eps {eps}",
    )


def test_cases():
    yield setting("SGD", 4, 0.1, 1.0, 0.01, 1e-8)
    yield setting("Adam", 1 / 8, 0.003, 1.0, 0.01, 1e-8)
    yield setting("AdamW", 4, 0.003, 1.0, 0.1, 1e-6)
    yield setting("AdamW", 2048, 1.5e-4, 1.0, 0.1, 1e-5)
    yield setting("SGD", 1 / 64, 0.5, 2.0, 0.0, 1e-8)
    yield setting("Adam", 8, 0.001, 0.5, 0.1, 1e-3)
    yield setting("SGD", 1, 0.1, 1.0, 0.01, 1e-8)


class Settings(Values):
    def general(self, trial, right):
        mine, its = trial.returned[0], right.returned[0]
        for name, given, one, other in zip(self.names, trial.case.arguments(0)[2:], mine, its):
            if not isclose(one, other, rel_tol=1e-9):
                turned = one != given and isclose(one * other, given**2, rel_tol=1e-9)
                return (
                    f"The factor is right, in the wrong direction: {name} should grow where you let it shrink, or "
                    "shrink where you let it grow"
                    if turned
                    else ""
                )
        return ""


@exercise(
    title="What a wrong factor changes",
    minutes=10,
    difficulty=2,
    test_cases=test_cases,
    targets=[
        Settings(
            "for SGD, Adam and AdamW, with gradients too long and too short",
            ["the learning rate", "the clip", "the weight decay", "the eps"],
            tell=False,
        )
    ],
    mistakes=[
        mistake(
            "Adam and AdamW divide a gradient by its own size: the factor cancels, and the learning rate stays",
            'learning_rate * (factor if optimizer == "SGD" else 1)',
            "learning_rate * factor",
        ),
        mistake(
            "With SGD the step is the learning rate times the gradient, and the gradient has the factor",
            'learning_rate * (factor if optimizer == "SGD" else 1)',
            "learning_rate",
        ),
        mistake(
            "A gradient that is longer comes to the limit earlier: the limit in effect is smaller, not larger",
            "clip / factor",
            "clip * factor",
        ),
        mistake("The limit is compared with a gradient that has the factor", "clip / factor", "clip"),
        mistake(
            "AdamW applies its decay directly to the weights, not to the gradient: nothing changes there",
            'weight_decay / (factor if optimizer != "AdamW" else 1)',
            "weight_decay / factor",
        ),
        mistake(
            "SGD and Adam add the decay to the gradient, and beside a longer one it counts less. (That SGD takes a "
            "longer step is in the learning rate already)",
            'weight_decay / (factor if optimizer != "AdamW" else 1)',
            "weight_decay",
        ),
        mistake(
            "Adam divides by sqrt(v) + eps. The factor is in sqrt(v) and not in eps, so beside it eps counts less, or "
            "more",
            'eps / (factor if optimizer != "SGD" else 1)',
            "eps",
        ),
        mistake(
            "SGD has no eps: it stays as it is written",
            'eps / (factor if optimizer != "SGD" else 1)',
            "eps / factor",
        ),
    ],
    hints=[
        "Write g for the right gradient and f for the factor. The program has f g. Write down what each optimizer "
        "does with it, and take the f out of the bracket.",
        "SGD: learning rate x (f g + decay x weight) = (f x learning rate) x (g + decay / f x weight).",
        "Adam: f m / (f sqrt(v) + eps), for m and sqrt(v) of the right gradient. Clipping: f g is longer than the "
        "limit where g is longer than limit / f.",
    ],
    why="A bug that only rescales is hidden by Adam and comes out where sizes are compared. The same factor "
    "appears without any bug whenever somebody changes the number of GPUs and leaves the settings alone.",
)
def settings_in_effect(optimizer, factor, learning_rate, clip, weight_decay, eps):
    """A program's gradients are ``factor`` times as long as they should be: 4 where four
    ranks sum and forget to divide, 1/8 where eight ranks divide twice. Return the
    (learning rate, clip, weight decay, eps) with which a program without that bug
    trains in the same way.

    optimizer:  "SGD", "Adam" or "AdamW", as in torch.optim.
    clip:       the largest norm of a gradient. Longer ones are clipped, and then the
                optimizer applies its weight decay.
    eps:        keeps Adam and AdamW from dividing by zero. SGD has none: return it as
                it is.
    """
    # ? Which of the four change, for which optimizer, and in which direction?
    return (
        learning_rate * (factor if optimizer == "SGD" else 1),
        clip / factor,
        weight_decay / (factor if optimizer != "AdamW" else 1),
        eps / (factor if optimizer != "SGD" else 1),
    )
