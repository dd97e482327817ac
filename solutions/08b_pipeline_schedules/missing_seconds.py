"""What a calculated step has not: how much slower passes are, what a message costs, and what is paid once a step."""

import torch

from tinydist.lab.author import Own, Varied, alone, exercise, mistake
from tinydist.pipeline_parallel.published_pipelines import ZERO_BUBBLE

OWN = Own("your own arithmetic", "here it is arithmetic, and yours", ("tinydist.pipeline_parallel",))


def made_up(ranks, busy, sequences, slower, message, once):
    """Steps of 1F1B, and of interleaved 1F1B with 2 and 4 stages per rank, as they would be published."""
    steps = []
    for stages in (1, 2, 4):
        for microbatches in (2 * ranks, 4 * ranks, 8 * ranks):
            bubble = round((ranks - 1) / (stages * microbatches + ranks - 1), 4)
            seconds = slower * microbatches * busy / (1 - bubble) + 2 * stages * microbatches * message + once
            samples = microbatches * sequences / ranks / seconds
            steps.append((microbatches, stages, busy, bubble, float(f"{samples:.3g}")))
    return steps, ranks, sequences


def published(name):
    """Tables 4 and 5 of Zero Bubble, in seconds."""
    setting, steps = ZERO_BUBBLE[name], []
    for schedule, samples in setting.samples.items():
        stages = (setting.layers + 2) // setting.ranks if schedule == "interleaved" else 1
        for column, microbatches in enumerate(setting.microbatches):
            busy = sum(setting.milliseconds[column][:3]) / 1e3
            steps.append((microbatches, stages, busy, setting.bubbles[schedule][column], samples[column]))
    return steps, setting.ranks, setting.microbatch


def test_cases():
    for about, ranks, sequences, causes in [
        ("passes that are slower most of all", 4, 2, (1.08, 0.0005, 0.02)),
        ("messages that block most of all", 4, 2, (1.01, 0.004, 0.02)),
        ("a slow optimizer most of all", 8, 1, (1.01, 0.0005, 0.3)),
        ("a bit of all", 2, 4, (1.05, 0.002, 0.1)),
        ("one sequence in a microbatch", 16, 1, (1.03, 0.001, 0.05)),
    ]:
        yield alone(lambda each=(ranks, 0.08, sequences, *causes): made_up(*each), about)
    for name in ZERO_BUBBLE:
        yield alone(lambda name=name: published(name), f"Zero Bubble's model of {name}")


@exercise(
    title="What the calculation leaves out",
    minutes=25,
    difficulty=4,
    test_cases=test_cases,
    targets=[
        OWN,
        Varied(
            "slower, message, once and the worst error, for made-up steps and for the four models of Zero Bubble's "
            "tables 4 and 5",
            names=["slower", "message", "once", "the worst error"],
            tell=False,
            whole=True,
            variants=[
                (
                    "This is the size of the worst error: it keeps its sign, below 0 where the fit is too fast",
                    "max(errors, key=abs)",
                    "max(map(abs, errors))",
                ),
                (
                    "The worst error is the largest in size, and not the one that is furthest below 0",
                    "max(errors, key=abs)",
                    "min(errors)",
                ),
                (
                    "The step that fits worst is asked for, and not the one that fits best",
                    "max(errors, key=abs)",
                    "min(errors, key=abs)",
                ),
                (
                    "The step that fits worst is asked for, and not the mean of all",
                    "max(errors, key=abs)",
                    "sum(map(abs, errors)) / len(errors)",
                ),
                (
                    "The step that fits worst is asked for, and not the mean of all",
                    "max(errors, key=abs)",
                    "sum(errors) / len(errors)",
                ),
                (
                    "The error of the step that fits worst is asked for, and not that of all together",
                    "max(errors, key=abs)",
                    "(sum(error**2 for error in errors) / len(errors)) ** 0.5",
                ),
                (
                    "Each F and each I of a rank has a message, also the last one",
                    "2 * stages * microbatches",
                    "2 * (stages * microbatches - 1)",
                ),
                (
                    "An error is below 0 where the fit is too fast: this has the other sign",
                    "said / took - 1",
                    "1 - said / took",
                ),
                ("An error is a part of the measured seconds, and these are seconds", "said / took - 1", "said - took"),
                ("An error is a part, and no percent", "said / took - 1", "100 * (said / took - 1)"),
                (
                    "This is what the fit says as a part of what was measured: an error is what it has too much",
                    "said / took - 1",
                    "said / took",
                ),
                (
                    "`busy` is of all stages of a rank together, and not of each",
                    "microbatches * busy / (1 - bubble)",
                    "stages * microbatches * busy / (1 - bubble)",
                ),
                (
                    "A step has all its microbatches, and not one",
                    "microbatches * busy / (1 - bubble)",
                    "busy / (1 - bubble)",
                ),
                (
                    "Messages are those of one rank: for each F and each I that it does",
                    "2 * stages * microbatches",
                    "2 * ranks * stages * microbatches",
                ),
                (
                    "Messages are counted for F and I, and W has none",
                    "2 * stages * microbatches",
                    "3 * stages * microbatches",
                ),
                (
                    "Each microbatch has its messages",
                    "2 * stages * microbatches",
                    "2 * stages",
                ),
            ],
        ),
    ],
    mistakes=[
        mistake(
            "Samples are those of one GPU: all ranks together do `ranks` times as many in a second",
            "microbatches * sequences / ranks / samples",
            "microbatches * sequences / samples",
        ),
        mistake(
            "A sample is a sequence, and a microbatch has `sequences` of them",
            "microbatches * sequences / ranks / samples",
            "microbatches / ranks / samples",
        ),
        mistake(
            "The bubble is a part of the step, not of the work: what is left of the step is work",
            "microbatches * busy / (1 - bubble)",
            "microbatches * busy * (1 + bubble)",
        ),
        mistake(
            "The calculated step has its bubble: slower passes make that longer, too",
            "microbatches * busy / (1 - bubble)",
            "microbatches * busy",
        ),
        mistake(
            "Each stage of a rank has its messages: with v stages there are v times as many",
            "2 * stages * microbatches",
            "2 * microbatches",
        ),
        mistake(
            "A stage has a message in forward and one in backward",
            "2 * stages * microbatches",
            "stages * microbatches",
        ),
        mistake("The worst error is the largest in size, and keeps its sign", "max(errors, key=abs)", "max(errors)"),
        mistake(
            "An error is a part of what was measured, and below 0 where the fit is too fast",
            "said / took - 1",
            "1 - took / said",
        ),
    ],
    hints=[
        "For each step three numbers make a row: what is multiplied by `slower`, what by `message`, and what by "
        "`once`. Their sum should be the seconds that were measured.",
        "The calculated seconds: M microbatches of work are 1 - bubble of the step. The measured ones: how many "
        "sequences has a step, and how many do all GPUs do in a second?",
        "A rank of v stages does F and I of each microbatch v times, and each of these passes has a message.",
        "Least squares gives the three causes for all steps at once. Multiply the rows by them, and compare with what "
        "was measured, step by step.",
    ],
    why="Steps that differ in one thing at a time tell causes apart: more microbatches alone cannot tell slow passes "
    "from slow messages, more stages per rank can. For Zero Bubble's four models passes come out 2 to 5 % slower than "
    "profiled and a message 0.8 to 2.3 times as long, and no step is off by more than 2.7 %. A fit is a guess, though: "
    "to prove a cause, change it and measure again.",
)
def missing_seconds(steps, ranks, sequences):
    """What measured steps have that calculated ones have not: (slower, message, once, the worst error).

    ``steps`` is a list of (microbatches, stages, busy, bubble, samples), one for each step that was measured: how many
    microbatches it has; how many stages a rank has; how many seconds F, I and W of one microbatch take a rank, all its
    stages together; the bubble that was calculated, as a part of the step; and what was measured, in sequences per
    second of one GPU. Each of ``ranks`` ranks is a GPU, and a microbatch has ``sequences`` sequences.

    A measured step should be ``slower`` times the calculated one, and ``message`` seconds for each F and each I that a
    rank does, and ``once`` seconds. Return what fits all steps best (least squares, as the last lines do), and the
    error of the step that fits worst: a part of the measured seconds, below 0 where the fit is too fast.
    """
    rows, measured = [], []  # of each step: what is multiplied by slower, message and once; seconds
    for microbatches, stages, busy, bubble, samples in steps:
        # ? A row, and the seconds that were measured
        rows.append([microbatches * busy / (1 - bubble), 2 * stages * microbatches, 1.0])
        measured.append(microbatches * sequences / ranks / samples)
        # .
    table, target = torch.tensor(rows, dtype=torch.float64), torch.tensor(measured, dtype=torch.float64)
    causes = torch.linalg.lstsq(table, target[:, None]).solution[:, 0]
    fitted = (table @ causes).tolist()
    # -
    errors = [said / took - 1 for said, took in zip(fitted, measured)]
    # .
    worst = max(errors, key=abs)  # = worst = None
    # ?
    # .
    return *causes.tolist(), worst
