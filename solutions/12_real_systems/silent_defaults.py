"""Which defaults are in force in a run, by its losses and by the bytes that a rank holds after a step."""

from random import Random

from tinydist.lab.author import Own, Varied, alone, exercise, mistake

SYSTEMS = ("DDP", "FSDP plugin", "DeepSpeed ZeRO 2", "DeepSpeed ZeRO 3")
BUCKET, THRESHOLD = 200_000, 100_000
NAMES = ["clipping", "buckets", "unsharded", "whole parameters"]


def run(seed):
    """Losses and bytes as they are measured: within a ten-thousandth."""
    draw = Random(seed)
    system, ranks = SYSTEMS[seed % 4], draw.choice((2, 3, 4, 8))
    sizes = [draw.choice((64, 512, 4096, 65_536, THRESHOLD, 262_144, 1_048_576)) for _ in range(draw.randint(8, 30))]
    numbers = sum(sizes)
    clips = seed % 3 == 0
    unsharded = system == "FSDP plugin" and draw.random() < 0.6
    buckets = (system == "DDP" or unsharded) and draw.random() < 0.6
    whole = system == "DeepSpeed ZeRO 3" and draw.random() < 0.6
    if whole:
        sizes.append(draw.choice((512, THRESHOLD)))
        numbers = sum(sizes)
    of = {
        "DDP": 4 * numbers,
        "FSDP plugin": 4 * numbers / (1 if unsharded else ranks),
        "DeepSpeed ZeRO 2": numbers + 3 * numbers / ranks,
        "DeepSpeed ZeRO 3": 5 * numbers / ranks + BUCKET,
    }[system]
    of += buckets * numbers + whole * sum(size for size in sizes if size <= THRESHOLD)
    held = round(4 * of * (1 + draw.uniform(0, 1e-4)))
    ours = [round(5.5 - 0.1 * step + draw.uniform(-0.1, 0.1), 6) for step in range(20)]
    apart = [draw.uniform(-3e-6, 3e-6) for _ in range(20)]
    if clips:  # up and down, early or late, so that no one loss tells it, and not the mean
        most, first = draw.choice((5e-3, 5e-2)), (3, 17)[seed // 3 % 2]
        for step in range(first, 19 if first == 17 else 15, 2):
            up = most * draw.uniform(0.4, 1)
            apart[step : step + 2] = up, -up
    losses = [round(loss + by, 6) for loss, by in zip(ours, apart)]
    small = sum(size <= THRESHOLD for size in sizes)
    about = f"{system} on {ranks} ranks, {numbers:,} numbers in {len(sizes)} parameters, {small} of them small"
    return about, (system, sizes, ranks, held, losses, ours)


def test_cases():
    for seed in range(40):
        about, arguments = run(seed)
        yield alone(lambda arguments=arguments: arguments, about)


CLIPS = "clipping = any(abs(loss - other) > 1e-4 for loss, other in zip(losses, ours))"


@exercise(
    title="Name the defaults of a run",
    minutes=20,
    difficulty=2,
    test_cases=test_cases,
    targets=[
        Own("your own arithmetic", "write the sums down yourself", ("tinydist.planner", "tinydist.zero")),
        Varied(
            "40 runs of four systems on 2 to 8 ranks; all in fp32, 4 bytes a number",
            NAMES,
            whole=True,
            variants=[
                (
                    "It is the other way round: where losses differ, another training runs, with clipping",
                    "clipping = any(",
                    "clipping = not any(",
                ),
                ("Not every difference is one of rounding: 1e-4 is enough for clipping", "> 1e-4 for", "> 1e-2 for"),
                ("DDP holds weights, gradients and two moments of Adam: 4 N", '"DDP": 4 *', '"DDP": 3 *'),
                (
                    "Bytes are compared with too few here, as if a number had not 4 bytes, or nothing was allowed for "
                    "rounding",
                    "held > 1.005 * 4 * plain",
                    "held > 1.005 * plain",
                ),
                (
                    "The plugin was not used: what is held then is DDP's, with buckets or without",
                    "held > 3.9 * 4 * numbers",
                    "held > 4.5 * 4 * numbers",
                ),
                (
                    "The plugin was not used only where all of 4 N are held: more than its shards may be DDP's "
                    "buckets, too",
                    "held > 3.9 * 4 * numbers",
                    "abs(held / (16 * numbers) - 1) < 0.01",
                ),
                (
                    "In stage 3 each rank holds a part: N / ranks",
                    "5 * numbers / ranks + 200_000",
                    "5 * numbers + 200_000",
                ),
                (
                    "Half a percent is allowed: small parameters that stay whole are few bytes",
                    "held > 1.005 *",
                    "held > 1.05 *",
                ),
                (
                    "unsharded is said of the plugin alone: DDP has nothing to shard",
                    'unsharded = system == "FSDP plugin" and held',
                    'unsharded = system in ("FSDP plugin", "DDP") and held',
                ),
            ],
        ),
    ],
    mistakes=[
        mistake(
            "Rounding makes losses differ too, in the sixth digit: ask whether some step is apart by more than 1e-4",
            "> 1e-4 for",
            "> 0 for",
        ),
        mistake(
            "These losses are of another training: some step is apart by more than 1e-4. Clipping has another factor "
            "in each step, so look at all of them, and not at the first or the last",
            "for loss, other in zip(losses, ours))",
            "for loss, other in zip(losses[:2], ours[:2]))",
        ),
        mistake(
            "What turns out to be DDP has DDP's default, too: Accelerate wraps with it, and says nothing of views",
            '(system == "DDP" or unsharded)',
            'system == "DDP"',
        ),
        mistake(
            "In stage 3 a rank holds five shards, DeepSpeed's copy in fp32 among them, and the bucket of 200,000 "
            "numbers, with the threshold and without it. Only bytes above that sum tell that small parameters stay "
            "whole",
            '"DeepSpeed ZeRO 3": 5 * numbers / ranks + 200_000',
            '"DeepSpeed ZeRO 3": 4 * numbers / ranks',
        ),
    ],
    hints=[
        "Two questions, independent of one another: are the losses those of one process, and are the bytes those of "
        "the formula?",
        "N is the bytes of all parameters. Write down what a rank holds if nothing is wrong: 4 N, 4 N / ranks, "
        "N + 3 N / ranks, and 5 N / ranks and a bucket of 200,000 numbers.",
        "What is held above the formula is one N (buckets), or all of what should have been cut (3/4 of 4 N on 4 "
        "ranks), or both. Allow half a percent.",
    ],
    why="None of these defaults raises an error, and no loss looks wrong. Twenty losses and one number of bytes find "
    "all four within a minute, before a month of GPUs has been spent on another training than you wanted.",
)
def silent_defaults(system, sizes, ranks, held, losses, ours):
    """Name the defaults that are in force in a run: return (clipping, buckets, unsharded, whole), each True or False.

    ``system`` is "DDP", "FSDP plugin" (Accelerate's), "DeepSpeed ZeRO 2" or "DeepSpeed ZeRO 3". ``sizes`` has the
    size of each parameter, in numbers, all in fp32 (4 bytes), trained with Adam on ``ranks`` ranks. ``held`` is what a
    rank holds after a step, in bytes, to half a percent. Gradients are still there in DDP, FSDP and ZeRO 3, and ZeRO 2
    has freed them. ZeRO 3 also holds a bucket of 200,000 numbers. ``losses`` and ``ours`` are the 20 losses of the run,
    and of one process.

    clipping: gradients are clipped. buckets: DDP, or what turns out to be DDP, keeps them beside the gradients.
    unsharded: the plugin was not used. whole: ZeRO 3 leaves parameters of up to 100,000 numbers whole, beside their
    shards.
    """
    numbers = sum(sizes)
    # ? Are the losses those of one process?
    clipping = any(abs(loss - other) > 1e-4 for loss, other in zip(losses, ours))
    # .
    # ? What should a rank hold, what does it hold above that, and which default explains it?
    expected = {
        "DDP": 4 * numbers,
        "FSDP plugin": 4 * numbers / ranks,
        "DeepSpeed ZeRO 2": numbers + 3 * numbers / ranks,
        "DeepSpeed ZeRO 3": 5 * numbers / ranks + 200_000,
    }
    unsharded = system == "FSDP plugin" and held > 3.9 * 4 * numbers
    plain = 4 * numbers if unsharded else expected[system]
    more = held > 1.005 * 4 * plain
    buckets = more and (system == "DDP" or unsharded)
    whole = more and system == "DeepSpeed ZeRO 3"
    return clipping, buckets, unsharded, whole
    # .
