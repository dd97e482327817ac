"""Below which bandwidth does 1-bit Adam pay, beside a step that overlaps?"""

from tinydist.lab.author import Own, Values, alone, exercise, mistake

from .chapter import SOLVED

PLANNERS = SOLVED | {"tinydist.hardware": "tinydist.hardware", "tinydist.planner": "tinydist.planner"}
CARD = "2 * (nodes - 1) / nodes"


def case(about, *arguments):
    return alone(lambda: arguments, about)


def test_cases():
    #               numbers nodes itemsize forward backward optimizer microbatches packing warm_up
    yield case("BERT-Large on 16 nodes, as published", 340e6, 16, 2, 0.036, 0.061, 0.076, 1, 0.01, 0.15)
    yield case("four microbatches", 340e6, 16, 2, 0.035, 0.061, 0.075, 4, 0.01, 0.15)
    yield case("gradients in fp32", 340e6, 8, 4, 0.033, 0.060, 0.058, 1, 0.02, 0.2)
    yield case("two nodes, no warm-up", 1e9, 2, 2, 0.2, 0.4, 0.1, 2, 0.05, 0.0)
    yield case("bits that are packed slowly", 7e9, 32, 2, 0.5, 1.0, 0.2, 1, 3.0, 0.15)


@exercise(
    title="The bandwidth below which compression pays",
    minutes=20,
    difficulty=3,
    test_cases=test_cases,
    targets=[
        Own("your own arithmetic", "here it is arithmetic, and yours", PLANNERS),
        Values(
            "the bandwidth, and the gain of a whole run at half of it; 2 to 32 nodes, 1 to 4 microbatches, gradients "
            "of 2 and of 4 bytes",
            names=("the bandwidth", "the gain at half of it"),
        ),
    ],
    mistakes=[
        mistake(
            "The step with all gradients overlaps: as much of its all-reduce as a backward takes does not show",
            "/ (backward + packing)",
            "/ packing",
            "max(0.0, whole / half - backward)",
            "whole / half",
        ),
        mistake(
            "Only the last microbatch's backward hides the all-reduce: gradients are complete then",
            "/ (backward + packing)",
            "/ (microbatches * backward + packing)",
            "whole / half - backward",
            "whole / half - microbatches * backward",
        ),
        mistake(
            "Packing takes its time in each compressed step, too", "(backward + packing)", "backward", " + packing", ""
        ),
        mistake(
            "A bit is an eighth of a byte: the gradients that it stands for have 8 times itemsize bits",
            "bits = card * numbers / 8",
            "bits = card * numbers / 16",
        ),
        mistake(
            "A node's card sends 2 (N-1)/N times the tensor, of N nodes",
            CARD,
            "2",
        ),
        mistake(
            "In the warm-up steps are as long as without compression: it is the time of steps that is averaged",
            "plain / (warm_up * plain + (1 - warm_up) * compressed)",
            "warm_up + (1 - warm_up) * plain / compressed",
        ),
        mistake(
            "Microbatches are computed one after the other, forward and backward, in both",
            "microbatches * (forward + backward) + optimizer",
            "forward + backward + optimizer",
        ),
        mistake(
            "One bit per number is a sixteenth of 2 bytes, and a 32nd of 4: it does not depend on itemsize",
            "bits = card * numbers / 8",
            "bits = card * numbers * itemsize / 16",
        ),
    ],
    hints=[
        "Write down the seconds of both steps at a bandwidth B. What they have in common does not matter for which is "
        "shorter.",
        "whole/B - backward shows of the one, bits/B + packing of the other. At which B are they equal?",
        "The warm-up is as slow in both runs: it decides how much is gained, and not whether.",
    ],
    why="The bandwidth depends neither on the warm-up nor on forward nor on the number of microbatches: only on what a "
    "backward hides and on what packing costs. How much is gained depends on all of them. With a backward of 61 ms and "
    "10 ms of packing, 1-bit Adam pays for BERT-Large on 16 nodes below 135 Gbit/s; at half of that a run is 1.3 times "
    "as fast.",
)
def pays_below(numbers, nodes, itemsize, forward, backward, optimizer, microbatches, packing, warm_up):
    """Below which bandwidth is a run with 1-bit Adam faster, and how many times as fast is it at half of that?

    A step runs ``microbatches`` times ``forward`` and ``backward`` seconds, then the optimizer's. Gradients are
    ``numbers`` of ``itemsize`` bytes, reduced once a step by a ring through the cards of ``nodes`` nodes, each of the
    same bandwidth in bytes/s. Without compression the all-reduce hides behind the last microbatch's backward, as far as
    that is long enough. A compressed step begins to send when backward is done, one bit per number both ways (leave the
    scales out), and packing takes ``packing`` seconds more. A part ``warm_up`` of all steps is as without compression.

    Return (bandwidth, gain): the seconds of the run without compression over those with it, at half of the bandwidth.
    """
    # ? What does a card send in both steps? When are they equally long?
    card = 2 * (nodes - 1) / nodes
    whole = card * numbers * itemsize
    bits = card * numbers / 8
    bandwidth = (whole - bits) / (backward + packing)
    # ? Both steps at half of that, and the run.
    half = bandwidth / 2
    computing = microbatches * (forward + backward) + optimizer
    plain = computing + max(0.0, whole / half - backward)
    compressed = computing + bits / half + packing
    return bandwidth, plain / (warm_up * plain + (1 - warm_up) * compressed)
