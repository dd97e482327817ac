"""A ds_config.json as Megatron-LM's arguments: other names, other defaults, and what cannot be said."""

from tinydist.lab.author import Case, Malformed, Values, exercise, kind, mistake
from tinydist.training.compat.megatron_args import optimizer_of, parse, plan_of, rate_of

BATCH, MICRO, STEPS = "train_batch_size", "train_micro_batch_size_per_gpu", "gradient_accumulation_steps"
GIVEN = (
    "--num-layers 2 --hidden-size 32 --num-attention-heads 2 --seq-length 32 --max-position-embeddings 32 "
    "--hidden-dropout 0 --attention-dropout 0 --train-iters 5000"
)
LOOKED_AT = (1, 50, 100, 800, 1000, 3000, 5000)


def adamw(**params):
    return {"type": "AdamW", "params": {"lr": 3e-4} | params}


def warmup(**params):
    return {"type": "WarmupLR", "params": params}


def case(about, dp, optimizer, scheduler=None, **said):
    said = said | {"optimizer": optimizer} | ({"scheduler": scheduler} if scheduler else {})
    return Case(dp, lambda rank: (said, dp), about)


LINE = {"warmup_type": "linear"}


def test_cases():
    yield case("two sizes, fp32", 1, adamw(weight_decay=0.1), **{BATCH: 8, MICRO: 2})
    yield case("bf16, stage 1, no weight decay", 2, adamw(), **{BATCH: 32, MICRO: 4}, bf16={"enabled": True},
               zero_optimization={"stage": 1})  # fmt: skip
    yield case("micro batch and accumulation", 3, adamw(weight_decay=0.0), **{MICRO: 2, STEPS: 5})
    yield case("batch and accumulation", 2, adamw(weight_decay=0.01), **{BATCH: 24, STEPS: 3}, bf16={"enabled": False})
    yield case("all three sizes, fp16", 4, adamw(weight_decay=0.1), **{BATCH: 48, MICRO: 4, STEPS: 3},
               fp16={"enabled": True})  # fmt: skip
    yield case("a warm-up of 100 steps", 1, adamw(weight_decay=0.1), warmup(**LINE, warmup_num_steps=100),
               **{BATCH: 4, MICRO: 4})  # fmt: skip
    yield case("a warm-up to another rate", 2, adamw(weight_decay=0.1),
               warmup(**LINE, warmup_num_steps=200, warmup_max_lr=1e-3), **{BATCH: 4, MICRO: 1})  # fmt: skip
    yield case("a warm-up without its steps", 1, adamw(weight_decay=0.1), warmup(**LINE), **{BATCH: 4, MICRO: 4})
    yield case("a warm-up without its type", 1, adamw(weight_decay=0.1), warmup(warmup_num_steps=100),
               **{BATCH: 4, MICRO: 4})  # fmt: skip
    yield case("a warm-up of type log", 2, adamw(weight_decay=0.1), warmup(warmup_type="log", warmup_num_steps=10),
               **{BATCH: 4, MICRO: 2})  # fmt: skip
    yield case("clipped at 0.5", 1, adamw(weight_decay=0.1), **{BATCH: 4, MICRO: 4}, gradient_clipping=0.5)
    yield case("not clipped", 2, adamw(weight_decay=0.1), **{BATCH: 4, MICRO: 1}, gradient_clipping=0)
    yield case("stage 2", 2, adamw(weight_decay=0.1), **{BATCH: 4, MICRO: 1}, zero_optimization={"stage": 2})
    yield case("stage 3", 3, adamw(weight_decay=0.1), **{BATCH: 6, MICRO: 1}, zero_optimization={"stage": 3})
    yield case("stage 0", 2, adamw(weight_decay=0.1), **{BATCH: 4, MICRO: 1}, zero_optimization={"stage": 0})
    yield case("other betas", 1, adamw(weight_decay=0.1, betas=[0.9, 0.95], eps=1e-6), **{BATCH: 4, MICRO: 4})


def read_by_megatron(answer, said, dp):
    """What pretrain_gpt.py would make of it."""
    try:
        words = answer(said, dp)
    except ValueError:
        return told("a ValueError, which is for what these arguments cannot say")
    if not isinstance(words, str):
        raise Malformed(f"it returned {kind(words)}, where arguments are right: a string")
    try:
        return told("arguments", parse(words=f"{GIVEN} {words}".split()))
    except ValueError as error:
        return told(f"an error, {error}")


def told(words, args=None):
    """In words: what comes of it, and what each argument means, "none" if there are no arguments."""
    plan, (made, options) = (plan_of(args), optimizer_of(args)) if args else (None, (None, {}))
    rates = {f"learning rate after step {step}": args and f"{rate_of(args, step):.4g}" for step in LOOKED_AT}
    found = {
        "what comes of it": words,
        "ranks": plan and f"dp {plan.dp}, tp {plan.tp}, pp {plan.pp}",
        "global batch": args and args.global_batch_size,
        "microbatches": plan and plan.microbatches,
        "precision": plan and plan.precision,
        "ZeRO stage": plan and plan.zero,
        "clipped at": plan and plan.max_norm,
        "optimizer": made and made.__name__,
        **{name: options.get(name) for name in ("weight_decay", "betas", "eps")},
    }
    return {name: "none" if value is None else str(value) for name, value in (found | rates).items()}


ONCE = "batch = said.get(BATCH) or said[MICRO] * said[STEPS] * dp"
MAX = 'lr = scheduler.get("warmup_max_lr", lr)'


@exercise(
    title="The same configuration, as arguments",
    minutes=15,
    difficulty=2,
    test_cases=test_cases,
    program=read_by_megatron,
    check_communication=False,  # an answer sends nothing
    targets=[
        Values(
            "sizes, precision, stage, clipping, the optimizer's numbers, and the learning rate after steps 1 to 5000, "
            "on 1 to 4 ranks; or a ValueError"
        ),
    ],
    mistakes=[
        mistake(
            "What is not said is 0 in DeepSpeed and 0.01 in Megatron-LM: weight decay has to be written down",
            "f\"--weight-decay {params.get('weight_decay', 0.0)}\"",
            '*([f"--weight-decay {params[\'weight_decay\']}"] if "weight_decay" in params else [])',
        ),
        mistake(
            "Megatron-LM's learning rate falls in a line to the last step, if no --lr-decay-style says otherwise. "
            "WarmupLR stays where it is, and so does a file without a scheduler",
            '"--lr-decay-style constant"',
            '""',
        ),
        mistake(
            "warmup_max_lr overwrites the optimizer's lr: it is the rate that is trained with",
            MAX,
            "pass",
        ),
        mistake(
            "A WarmupLR rises by the logarithm if it does not say linear, and Megatron-LM only knows a line: that is a "
            "ValueError",
            'if scheduler.get("warmup_type", "log") != "linear":',
            "if False:",
        ),
        mistake(
            "A WarmupLR that does not say its steps has 1000 in DeepSpeed. Megatron-LM has no warm-up, if none is said",
            "scheduler.get('warmup_num_steps', 1000)",
            "scheduler.get('warmup_num_steps', 0)",
        ),
        mistake(
            "gradient_clipping 0 means that nothing is clipped. An argument that is left out means 1.0",
            "said.get('gradient_clipping', 1.0)",
            "said.get('gradient_clipping') or 1.0",
        ),
        mistake(
            "The global batch is that of all data ranks: micro batch x accumulation x dp",
            ONCE,
            "batch = said.get(BATCH) or said[MICRO] * said[STEPS]",
        ),
        mistake(
            "--use-distributed-optimizer shards the optimizer's states alone, as stage 1. Stages 2 and 3 also shard "
            "gradients, or weights: that is a ValueError",
            "if stage > 1:",
            "if False:",
        ),
    ],
    hints=[
        "Go through the file key by key, with Names and flags beside it. Then go through the same page once more, for "
        "the keys that the file does not have: which default is another one there?",
        "Three sizes, one equation, and dp is known. Megatron-LM wants the micro batch and the global batch.",
        "Five defaults matter. Weight decay is 0 in DeepSpeed and 0.01 in Megatron-LM, and the rate stays in one and "
        "falls in a line in the other. warmup_type is log and warmup_num_steps 1000. Clipping is 1.0 in both.",
    ],
    why="Losses that differ after a move from one system to another mostly come from what neither file says. Writing "
    "down each default once, in the new notation, takes minutes, and finding one by its losses takes days.",
)
def as_arguments(said, dp):
    """Return Megatron-LM's arguments, as one string, for what ``said`` means to DeepSpeed on ``dp`` data-parallel
    ranks. The model's sizes, dropout and --train-iters 5000 are given already. If these arguments cannot say it, raise
    a ValueError.

    ``said`` has two or three of the sizes of a batch, and "optimizer", an AdamW with its lr and perhaps weight_decay,
    betas and eps. It may have a "scheduler", a WarmupLR that begins at 0, gradient_clipping, zero_optimization.stage,
    and bf16 or fp16 with "enabled". What it does not have is as in DeepSpeed by default. DeepSpeed accepts ``said``.
    What no argument below can say is left aside: the first scale of fp16, in which dtype gradients are reduced, and
    which parameters decay (Megatron-LM leaves out biases and norms, DeepSpeed decays all).

    Arguments to choose from: --micro-batch-size, --global-batch-size, --bf16, --fp16, --use-distributed-optimizer,
    --optimizer, --lr, --weight-decay, --adam-beta1, --adam-beta2, --adam-eps, --clip-grad, --lr-warmup-iters,
    --lr-decay-style.
    """
    BATCH, MICRO = "train_batch_size", "train_micro_batch_size_per_gpu"
    STEPS = "gradient_accumulation_steps"
    # ? What are the sizes, the precision and the stage?
    batch = said.get(BATCH) or said[MICRO] * said[STEPS] * dp
    micro = said.get(MICRO) or batch // said[STEPS] // dp
    words = [f"--micro-batch-size {micro} --global-batch-size {batch}"]
    words += [f"--{name}" for name in ("bf16", "fp16") if said.get(name, {}).get("enabled")]
    stage = said.get("zero_optimization", {}).get("stage", 0)
    if stage > 1:
        raise ValueError(f"stage {stage}")
    words += ["--use-distributed-optimizer"] * stage
    # ? What has another default there?
    params = said["optimizer"]["params"]
    lr, (beta1, beta2) = params["lr"], params.get("betas", (0.9, 0.999))
    words += [f"--weight-decay {params.get('weight_decay', 0.0)}", f"--adam-eps {params.get('eps', 1e-8)}"]
    words += [f"--adam-beta1 {beta1} --adam-beta2 {beta2}", "--lr-decay-style constant"]
    words += [f"--clip-grad {said.get('gradient_clipping', 1.0)}"]
    # ? How does the learning rate rise?
    if "scheduler" in said:
        scheduler = said["scheduler"].get("params", {})
        if scheduler.get("warmup_type", "log") != "linear":
            raise ValueError("a line is all that Megatron-LM knows")
        words += [f"--lr-warmup-iters {scheduler.get('warmup_num_steps', 1000)}"]
        lr = scheduler.get("warmup_max_lr", lr)
    return " ".join([*words, f"--lr {lr}"])
