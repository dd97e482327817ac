"""What the settings of an optimizer become where gradients are summed and not averaged."""

from tinydist.lab.author import Values, alone, exercise, mistake


def setting(optimizer, ranks, learning_rate, clip, weight_decay):
    return alone(
        lambda: (optimizer, ranks, learning_rate, clip, weight_decay),
        f"{optimizer} on {ranks} ranks, learning rate {learning_rate}, clipping at {clip}, weight decay {weight_decay}",
    )


def test_cases():
    yield setting("SGD", 4, 0.1, 1.0, 0.01)
    yield setting("Adam", 4, 0.003, 1.0, 0.01)
    yield setting("AdamW", 4, 0.003, 1.0, 0.1)
    yield setting("AdamW", 2048, 1.5e-4, 1.0, 0.1)
    yield setting("SGD", 64, 0.5, 2.0, 0.0)
    yield setting("Adam", 8, 0.001, 0.5, 0.1)
    yield setting("SGD", 1, 0.1, 1.0, 0.01)


@exercise(
    title="What a forgotten division changes",
    minutes=10,
    difficulty=2,
    test_cases=test_cases,
    targets=[
        Values(
            "for SGD, Adam and AdamW, on 1 to 2,048 ranks",
            ["the learning rate", "the clip", "the weight decay"],
            tell=False,
        )
    ],
    mistakes=[
        mistake(
            "Adam and AdamW divide a gradient by its own size: the factor cancels, and the learning rate stays",
            'learning_rate * (ranks if optimizer == "SGD" else 1)',
            "learning_rate * ranks",
        ),
        mistake(
            "With SGD the step is the learning rate times the gradient, and the gradient is ranks times too long",
            'learning_rate * (ranks if optimizer == "SGD" else 1)',
            "learning_rate",
        ),
        mistake(
            "The gradient is ranks times too long, so the step of SGD gets longer, not shorter",
            'learning_rate * (ranks if optimizer == "SGD" else 1)',
            "learning_rate / ranks",
        ),
        mistake(
            "The gradient is longer, so it comes to the limit earlier: the limit in effect is smaller, not larger",
            "clip / ranks",
            "clip * ranks",
        ),
        mistake("The limit is compared with a gradient that is ranks times too long", "clip / ranks", "clip"),
        mistake(
            "AdamW applies its decay directly to the weights, not to the gradient: nothing changes there",
            'weight_decay / (ranks if optimizer != "AdamW" else 1)',
            "weight_decay / ranks",
        ),
        mistake(
            "SGD and Adam add the decay to the gradient, and beside one that is ranks times too long it counts "
            "less. (That SGD takes a longer step is in the learning rate already)",
            'weight_decay / (ranks if optimizer != "AdamW" else 1)',
            "weight_decay",
        ),
    ],
    hints=[
        "Write g for the right gradient and p for the ranks. The program has p g. Write down what each optimizer "
        "does with it, and take the p out of the bracket.",
        "SGD: learning rate x (p g + decay x weight) = (p x learning rate) x (g + decay / p x weight).",
        "Adam does not see a constant factor, so p (g + decay / p x weight) is for it g + decay / p x weight. "
        "Clipping: p g is longer than the limit where g is longer than limit / p.",
    ],
    why="A bug that only rescales is hidden by Adam and comes out where sizes are compared. And the same factor "
    "appears without any bug whenever somebody changes the number of GPUs and leaves the settings alone.",
)
def settings_in_effect(optimizer, ranks, learning_rate, clip, weight_decay):
    """Somebody sums the gradients of ``ranks`` ranks and forgets to divide. Return the
    (learning rate, clip, weight decay) with which one rank, on the whole batch, trains
    in the same way, but for the tiny eps of Adam.

    optimizer:  "SGD", "Adam" or "AdamW", as in torch.optim.
    clip:       the largest norm of a gradient. Longer ones are clipped, and then the
                optimizer applies its weight decay.
    """
    # ? Which of the three change, and in which direction?
    return (
        learning_rate * (ranks if optimizer == "SGD" else 1),
        clip / ranks,
        weight_decay / (ranks if optimizer != "AdamW" else 1),
    )
