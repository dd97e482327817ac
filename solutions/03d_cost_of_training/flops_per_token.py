"""Training FLOPs of a token in a model with experts: as reports count them, and as the hardware does them."""

from tinydist.lab.author import Own, Varied, alone, exercise, mistake

from .chapter import BY_HAND, SOLVED


def case(about, *arguments):
    return alone(lambda: arguments, about)


def test_cases():
    #             layers width inner heads kv vocabulary sequence experts chosen recomputes
    yield case("a dense model of one layer", 1, 64, 256, 4, 4, 480, 128, 1, 1, False)
    yield case("the same, recomputed", 1, 64, 256, 4, 4, 480, 128, 1, 1, True)
    yield case("Llama 3 8B", 32, 4096, 14_336, 32, 8, 128_256, 8192, 1, 1, False)
    yield case("Mixtral 8x7B", 32, 4096, 14_336, 32, 8, 32_000, 4096, 8, 2, False)
    yield case("Mixtral 8x7B, recomputed", 32, 4096, 14_336, 32, 8, 32_000, 4096, 8, 2, True)
    yield case("many small experts, a long sequence", 16, 2048, 1024, 16, 2, 50_000, 131_072, 64, 6, False)


class Flops(Varied):
    def general(self, trial, right):
        layers, width, *_, experts, _, _ = trial.case.arguments(0)
        off = trial.returned[0][0] - right.returned[0][0]
        if experts == 1 and off == 6 * layers * width:
            return "There is no router where there is one expert alone: nobody has to choose"
        return super().general(trial, right)


@exercise(
    title="FLOPs of a token",
    minutes=20,
    difficulty=2,
    test_cases=test_cases,
    targets=[
        Own("your own arithmetic", BY_HAND, SOLVED),
        Flops(
            "the FLOPs of the model, and those of the hardware, for dense models and for experts",
            names=("the model's FLOPs", "the hardware's FLOPs"),
            variants=[
                (
                    "Keys have a matrix, and values have one: width x width kv/heads each, and one of the two is "
                    "missing",
                    "2 * width * width * kv_heads / heads",
                    "width * width * kv_heads / heads",
                ),
                (
                    "The matrices of keys and values are missing",
                    "2 * width * width * kv_heads / heads",
                    "0",
                ),
                (
                    "Queries have a matrix, and the projection is another one: width x width each, and one of the two "
                    "is missing",
                    "attention = 2 * width * width +",
                    "attention = width * width +",
                ),
                ("SwiGLU has three matrices: one alone is counted", "chosen * 3 * width", "chosen * width"),
                (
                    "A causal mask leaves half of the scores, and half of the mixes: here it is half of one of them",
                    "2 * 2 * sequence / 2 * width",
                    "3 * sequence * width",
                ),
                (
                    "Attention has two products, scores and mixes: one is missing",
                    "2 * 2 * sequence / 2 * width",
                    "2 * sequence / 2 * width",
                ),
                (
                    "Each multiplication comes with an addition: 2 FLOPs for each parameter that a token meets",
                    "= 2 * met",
                    "= met",
                ),
                (
                    "Each multiplication comes with an addition, in the logits, too",
                    "+ 2 * width * vocabulary",
                    "+ width * vocabulary",
                ),
                (
                    "The embedding is a table that is looked up: it takes no product",
                    "+ 2 * width * vocabulary",
                    "+ 4 * width * vocabulary",
                ),
                (
                    "The logits come once, and not in each layer",
                    "+ 2 * width * vocabulary",
                    "+ layers * 2 * width * vocabulary",
                ),
                (
                    "Backward takes twice what forward takes: three times in all",
                    "3 * forward, 3 * forward",
                    "2 * forward, 2 * forward",
                ),
                (
                    "Backward is missing: it takes twice what forward takes",
                    "3 * forward, 3 * forward",
                    "forward, forward",
                ),
                (
                    "Scores and mixes have a backward pass, too, of twice their FLOPs",
                    "return 3 * forward, 3 * forward + again",
                    "less = 4 * layers * sequence * width\n    return 3 * forward - less, 3 * forward - less + again",
                ),
                ("What runs again is missing in the hardware's FLOPs", "3 * forward + again", "3 * forward"),
                (
                    "It is the hardware that runs layers again, and not the model",
                    "return 3 * forward,",
                    "return 3 * forward + again,",
                ),
                (
                    "The model's FLOPs come first, then the hardware's",
                    "return 3 * forward, 3 * forward + again",
                    "return 3 * forward + again, 3 * forward",
                ),
                (
                    "The scores that the fused kernel computes again inside its own backward pass are in the "
                    "hardware's FLOPs. They are not counted: without recomputation both numbers are the same",
                    "3 * forward + again",
                    "3 * forward + again + layers * sequence * width",
                ),
                (
                    "The scores that the fused kernel computes again inside its own backward pass are in both numbers. "
                    "They are not counted: backward takes twice what forward takes",
                    "return 3 * forward, 3 * forward + again",
                    "more = layers * sequence * width\n    return 3 * forward + more, 3 * forward + again + more",
                ),
                ("What runs again runs forward alone", "3 * forward + again", "3 * forward + 3 * again"),
                (
                    "A layer that runs again computes its scores and mixes, too",
                    "again = layers * layer_forward",
                    "again = layers * 2 * met",
                ),
                (
                    "Each expert that a token meets is an MLP of three matrices; attention is there once",
                    "met = attention +",
                    "met = chosen * attention +",
                ),
                (
                    "The router has a column for each of the experts, and not for those that are chosen",
                    "width * experts if",
                    "width * chosen if",
                ),
            ],
        ),
    ],
    mistakes=[
        mistake(
            "A token meets only `chosen` of the experts: the other ones cost it no arithmetic",
            "chosen * 3 * width * intermediate",
            "experts * 3 * width * intermediate",
        ),
        mistake(
            "The router is a matrix, too: width x experts",
            " + (width * experts if experts > 1 else 0)",
            "",
        ),
        mistake(
            "SwiGLU has three matrices: gate, up and down",
            "chosen * 3 * width",
            "chosen * 2 * width",
        ),
        mistake(
            "Keys and values have kv_heads heads, not as many as the queries",
            "2 * width * width * kv_heads / heads",
            "2 * width * width",
        ),
        mistake(
            "The matrix of the logits is missing: width x vocabulary",
            " + 2 * width * vocabulary",
            "",
        ),
        mistake(
            "Scores and mixes have no parameters, and take FLOPs all the same",
            "2 * 2 * sequence / 2 * width",
            "0",
        ),
        mistake(
            "A causal mask leaves half of the scores",
            "2 * 2 * sequence / 2 * width",
            "2 * 2 * sequence * width",
        ),
        mistake(
            "Only layers run again. The logits are computed once",
            "layers * layer_forward if recomputes",
            "forward if recomputes",
        ),
    ],
    hints=[
        "Count one forward pass: 2 FLOPs for each parameter that a token meets, and attention's own products. "
        "Then ask how many "
        "times everything runs.",
        "A layer has the matrices of queries and projection (width x width), of keys and values (width x width "
        "kv/heads), the router, "
        "and three of width x intermediate in each expert that a token meets.",
        "Each of scores and mixes takes 2 width FLOPs for each position that a token sees: sequence / 2 on "
        "average. The "
        "backward pass takes twice what the forward pass takes.",
    ],
    why="Two reports of the same run differ by a third if one counts recomputation (HFU) and the other does not "
    "(MFU), and "
    "by much more if somebody takes all parameters of a model with experts. Now you can say which they took.",
)
def flops_per_token(layers, width, intermediate, heads, kv_heads, vocabulary, sequence, experts, chosen, recomputes):
    """How many FLOPs does a token take in a training step, forward and backward? Return two numbers.

    The first is what the model needs (for MFU), the second what the hardware does (for HFU). If ``recomputes``, the
    backward pass runs all layers again, each to its end; the logits are not run again. Else both numbers are the same:
    what the fused kernel computes anew inside its own backward pass is not counted.

    A layer has queries and a projection (width x width each), keys and values with ``kv_heads`` of ``heads`` heads,
    and an MLP with SwiGLU: three matrices of width x intermediate. If there are several ``experts``, each is such an
    MLP, a token meets ``chosen`` of them, and a router of width x experts chooses. After the layers come the logits,
    width x vocabulary. (The embedding is a table that is looked up.) The mask is causal, and fused attention skips
    what it hides: a token sees sequence / 2 positions on average. Products alone are counted, each multiplication and
    each addition.
    """
    # ? Which parameters does a token meet, what does attention add, and how often does each part run?
    attention = 2 * width * width + 2 * width * width * kv_heads / heads
    met = attention + chosen * 3 * width * intermediate + (width * experts if experts > 1 else 0)
    layer_forward = 2 * met + 2 * 2 * sequence / 2 * width
    forward = layers * layer_forward + 2 * width * vocabulary
    again = layers * layer_forward if recomputes else 0
    return 3 * forward, 3 * forward + again
