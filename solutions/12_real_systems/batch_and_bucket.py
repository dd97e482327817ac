"""What a run's settings mean in one unit: each system counts batches and buckets in its own."""

from random import Random

from tinydist.lab.author import Own, Varied, alone, exercise, mistake

SYSTEMS = ("DDP", "Accelerate", "DeepSpeed", "Megatron-LM", "torchtitan")


def settings_of(system, draw):
    """As somebody has written them: what is left away is not there."""
    micro, steps = draw.choice((1, 2, 3, 4)), draw.choice((1, 2, 5, 8))
    if system == "DDP":
        return {"batch_size": micro} | some(draw, accumulated=steps, bucket_cap_mb=draw.choice((1, 10, 50)))
    if system == "Accelerate":
        split = draw.random() < 0.5  # then the batch is dealt out to the processes, and divides
        own = {"batch_size": 64 * micro, "split_batches": True} if split else {"batch_size": micro}
        return own | some(draw, gradient_accumulation_steps=steps, bucket_cap_mb=draw.choice((1, 10, 50)))
    if system == "DeepSpeed":
        if draw.random() < 0.4:
            own = {"train_batch_size": 64 * micro * steps, "gradient_accumulation_steps": steps}
        else:
            own = {"train_micro_batch_size_per_gpu": micro} | some(draw, gradient_accumulation_steps=steps)
        return own | some(draw, reduce_bucket_size=draw.choice((2_000_000, 50_000_000)))
    if system == "Megatron-LM":
        own = {"--micro-batch-size": micro} | some(draw, **{"--global-batch-size": 64 * micro * steps})
        own |= some(draw, **{"--tensor-model-parallel-size": 2, "--pipeline-model-parallel-size": 4})
        own |= {"--overlap-grad-reduce": True} if draw.random() < 0.7 else {}
        return own | some(draw, **{"--ddp-bucket-size": draw.choice((1_000_000, 60_000_000))})
    return {"num_tokens_per_train_step": 64 * micro * steps * 2048}


def some(draw, **settings):
    return {name: value for name, value in settings.items() if draw.random() < 0.6}


def test_cases():
    for seed in range(60):
        draw = Random(seed)
        system, gpus, context = SYSTEMS[seed % 5], draw.choice((8, 16, 64)), draw.choice((512, 2048))
        settings, numbers = settings_of(system, draw), draw.choice((5_000_000, 30_000_000, 900_000_000))
        about = f"{system} on {gpus} GPUs, {settings}, {numbers:,} gradients on a rank"
        yield alone(lambda given=(system, settings, gpus, context, numbers): given, about)
    many = "Megatron-LM", {"--micro-batch-size": 2, "--overlap-grad-reduce": True}, 64, 2048, 900_000_000
    yield alone(lambda: many, "Megatron-LM on 64 GPUs, of which each has a part of the batch; 900,000,000 gradients")


STEPS_GPUS = "* steps * gpus\n"


@exercise(
    title="One wish in five units",
    minutes=15,
    difficulty=2,
    test_cases=test_cases,
    targets=[
        Own("your own arithmetic", "count the tokens and the bytes yourself", ("tinydist.planner", "tinydist.scripts")),
        Varied(
            "60 runs of five systems on 8 to 64 GPUs",
            ["the tokens of a step", "the bytes of a bucket"],
            whole=True,
            variants=[
                (
                    "What your loop accumulates belongs to the step: the optimizer sees all of it",
                    'settings.get("accumulated", 1)',
                    "1",
                ),
                (
                    "What is accumulated belongs to the step, by whatever name: the optimizer sees all of it",
                    'settings.get("accumulated", 1)',
                    "1",
                    'settings.get("gradient_accumulation_steps", 1)',
                    "1",
                ),
                (
                    "batch_size is that of one process here: all processes together have `gpus` times as much",
                    STEPS_GPUS,
                    "* steps\n",
                ),
                (
                    "train_batch_size is that of all GPUs and of all that is accumulated: it is not multiplied again",
                    'settings.get("train_batch_size", sequences)',
                    'settings.get("train_batch_size", 0) * gpus or sequences',
                ),
                (
                    "train_batch_size is that of all GPUs and of all that is accumulated: it is not multiplied again",
                    'settings.get("train_batch_size", sequences)',
                    'settings.get("train_batch_size", 0) * steps or sequences',
                ),
                (
                    "--global-batch-size is that of all GPUs: it is not multiplied again",
                    '"--global-batch-size", micro * gpus // cut)',
                    '"--global-batch-size", micro) * (gpus // cut)',
                ),
                (
                    "num_tokens_per_train_step is that of all GPUs: it is not multiplied again",
                    '["num_tokens_per_train_step"], 0',
                    '["num_tokens_per_train_step"] * gpus, 0',
                ),
                (
                    "num_tokens_per_train_step has tokens already, and not sequences",
                    '["num_tokens_per_train_step"], 0',
                    '["num_tokens_per_train_step"] * context, 0',
                ),
                (
                    "FSDP2 has no buckets of gradients: 0 bytes",
                    '["num_tokens_per_train_step"], 0',
                    '["num_tokens_per_train_step"], min(25 * 2**20, 4 * numbers)',
                ),
                ("Tokens are asked for: sequences x context", "tokens = sequences * context", "tokens = sequences"),
                (
                    "Without --global-batch-size each data-parallel rank has one microbatch, and this is that of one "
                    "rank",
                    "micro * gpus // cut",
                    "micro",
                ),
                (
                    "GPUs of a pipeline share a part of the batch, too: data-parallel ranks are GPUs / (tensor x "
                    "pipeline)",
                    ' * settings.get("--pipeline-model-parallel-size", 1)',
                    "",
                ),
                (
                    "GPUs of a tensor group share a part of the batch, too: data-parallel ranks are GPUs / (tensor x "
                    "pipeline)",
                    'settings.get("--tensor-model-parallel-size", 1) * ',
                    "",
                ),
                (
                    "reduce_bucket_size counts numbers, and a gradient in fp32 has 4 bytes",
                    'settings.get("reduce_bucket_size", 500_000_000)',
                    'settings.get("reduce_bucket_size", 500_000_000) // 4',
                ),
                (
                    "--ddp-bucket-size counts numbers, and a gradient in fp32 has 4 bytes",
                    "1_000_000 * (gpus // cut)))",
                    "1_000_000 * (gpus // cut))) // 4",
                ),
                ("DeepSpeed's bucket has 500,000,000 numbers, if nothing is said", "500_000_000", "200_000_000"),
                ("PyTorch's bucket has 25 MiB, if nothing is said", '"bucket_cap_mb", 25', '"bucket_cap_mb", 100'),
                (
                    "Megatron-LM's bucket grows with the data-parallel ranks, if nothing is said: max(40,000,000, "
                    "1,000,000 x "
                    "ranks) numbers",
                    "max(40_000_000, 1_000_000 * (gpus // cut))",
                    "40_000_000",
                ),
                (
                    "Megatron-LM's bucket grows with the data-parallel ranks, and not with all GPUs",
                    "1_000_000 * (gpus // cut)",
                    "1_000_000 * gpus",
                ),
                (
                    "In PyTorch, too, a bucket is never larger than all gradients of a rank",
                    "min(4 * bucket, 4 * numbers)",
                    '4 * (bucket if system in ("DDP", "Accelerate") else min(bucket, numbers))',
                ),
                (
                    "Each system has a default of its own; and by default, too, a bucket is never larger than all "
                    "gradients",
                    "min(4 * bucket, 4 * numbers)",
                    'min(4 * bucket, 4 * numbers) if any("bucket" in name for name in settings) else 25 * 2**20',
                ),
                ("A gradient in fp32 has 4 bytes", "min(4 * bucket, 4 * numbers)", "min(2 * bucket, 2 * numbers)"),
                ("bucket_cap_mb is in MiB of bytes, and not in numbers", "* 2**20 // 4", "* 2**20"),
            ],
        ),
    ],
    mistakes=[
        mistake(
            "Not every GPU has its own part of the batch: those of a tensor group, and of a pipeline, share one",
            "micro * gpus // cut",
            "micro * gpus",
        ),
        mistake(
            "With split_batches, batch_size is of all processes together, and is dealt out to them",
            'if settings.get("split_batches")',
            "if False",
        ),
        mistake(
            "What is accumulated belongs to the step: the optimizer sees all of it",
            'settings.get("gradient_accumulation_steps", 1)',
            "1",
        ),
        mistake(
            "DeepSpeed and Megatron-LM count a bucket in numbers, and a gradient in fp32 is 4 bytes",
            "return tokens, min(4 * bucket, 4 * numbers)",
            "return tokens, min(bucket, 4 * numbers)",
        ),
        mistake("PyTorch's bucket_cap_mb is in MiB, of 2^20 bytes", "* 2**20", "* 10**6"),
        mistake(
            "Megatron-LM fills buckets only if it overlaps them with backward. Without --overlap-grad-reduce there is "
            "one, of all gradients",
            'if settings.get("--overlap-grad-reduce")',
            "if True",
        ),
        mistake(
            "A bucket is never larger than all the gradients of a rank",
            "return tokens, min(4 * bucket, 4 * numbers)",
            "return tokens, 4 * bucket",
        ),
    ],
    hints=[
        "For each system, first ask: is its batch that of one process, or of the whole step? Is it in sequences "
        "or in tokens?",
        "How many ranks have different sequences? All GPUs, but in Megatron-LM only GPUs / (tensor x pipeline).",
        "Left away, a bucket is 25 MiB in PyTorch, 500,000,000 numbers in DeepSpeed, and in Megatron-LM "
        "max(40,000,000, 1,000,000 x data-parallel ranks) numbers.",
    ],
    why="Runs are compared by tokens of a step and bytes of a message, and no two systems write these down alike. "
    "Whoever moves a file's numbers to another system as they stand has changed the batch, and with it the training.",
)
def batch_and_bucket(system, settings, gpus, context, numbers):
    """Read a run's settings: return (tokens of a step, bytes of its largest bucket of gradients in fp32).

    ``settings`` is a dict in the words of its system, without what is left at its default. A step is one update of the
    optimizer, by all ``gpus`` together. Sequences have ``context`` tokens, and a rank has ``numbers`` gradients.

    "DDP": "batch_size" of each process's loader; "accumulated", by your loop (1); "bucket_cap_mb".
    "Accelerate", which wraps with DDP: "batch_size", "split_batches", "gradient_accumulation_steps" (1),
    "bucket_cap_mb".
    "DeepSpeed": "train_batch_size", or "train_micro_batch_size_per_gpu"; "gradient_accumulation_steps" (1);
    "reduce_bucket_size".
    "Megatron-LM": "--micro-batch-size"; "--global-batch-size", or else one microbatch on each data-parallel rank;
    "--tensor-model-parallel-size" and "--pipeline-model-parallel-size" (1); "--overlap-grad-reduce";
    "--ddp-bucket-size".
    "torchtitan": "num_tokens_per_train_step". It shards with FSDP2, which has no such buckets: 0 bytes.
    """
    # ? How many tokens are in a step, and how many numbers or bytes in a bucket?
    if system == "torchtitan":
        return settings["num_tokens_per_train_step"], 0
    if system == "Megatron-LM":
        cut = settings.get("--tensor-model-parallel-size", 1) * settings.get("--pipeline-model-parallel-size", 1)
        micro = settings["--micro-batch-size"]
        sequences = settings.get("--global-batch-size", micro * gpus // cut)
        bucket = numbers
        if settings.get("--overlap-grad-reduce"):
            bucket = settings.get("--ddp-bucket-size", max(40_000_000, 1_000_000 * (gpus // cut)))
    else:
        steps = settings.get("gradient_accumulation_steps", 1) * settings.get("accumulated", 1)
        bucket = settings.get("reduce_bucket_size", 500_000_000)
        if system != "DeepSpeed":
            bucket = settings.get("bucket_cap_mb", 25) * 2**20 // 4
        sequences = settings.get("batch_size", settings.get("train_micro_batch_size_per_gpu", 0)) * steps * gpus
        if settings.get("split_batches"):
            sequences = settings["batch_size"] * steps
        sequences = settings.get("train_batch_size", sequences)
    tokens = sequences * context
    return tokens, min(4 * bucket, 4 * numbers)
    # .
