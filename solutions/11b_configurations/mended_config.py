"""A configuration that does not add up: what stays, what follows, and what has to go."""

import copy
from random import Random

from tinydist.lab.author import Case, Malformed, Varied, exercise, kind, mistake
from tinydist.training import Config
from tinydist.training.compat.ds_file import ConfigError

BATCH, MICRO, STEPS = "train_batch_size", "train_micro_batch_size_per_gpu", "gradient_accumulation_steps"
LR = {"optimizer": {"type": "AdamW", "params": {"lr": 1e-4}}}
BOTH = {"fp16": {"enabled": True, "loss_scale": 0, "hysteresis": 2}, "bf16": {"enabled": True}}
CPU = {"device": "cpu", "pin_memory": True}
OFFLOADED = {"stage": 3, "offload_optimizer": CPU, "offload_param": CPU}
KEPT = {"reduce_bucket_size": 1000, "overlap_comm": True}
ZERO = "zero_optimization"
LOOKED_AT = (f"{ZERO}.stage", "fp16.enabled", "bf16.enabled", "gradient_clipping")


def case(batch, micro, dp, pp=1, about="", **said):
    sizes = {BATCH: batch, MICRO: micro}
    words = f"batch {batch}, micro batch {micro}, dp {dp}, pp {pp}{about and ', '}{about}"
    return Case(dp * pp, lambda rank: (copy.deepcopy(sizes | LR | said), dp, pp), words)


def test_cases():
    yield case(8, 4, 1)
    yield case(8, 4, 2, gradient_accumulation_steps=4, about="accumulation 4")
    yield case(24, 6, 2, about="from 4 ranks, where it was right")
    yield case(36, 5, 3)
    yield case(18, 4, 3, gradient_clipping=0.5, about="clipped at 0.5")
    yield case(8, 2, 3)
    yield case(8, 2, 2, 2, zero_optimization={"stage": 2}, about="stage 2")
    yield case(8, 2, 1, 2, zero_optimization={"stage": 3, "offload_param": CPU}, about="stage 3, offload_param")
    yield case(8, 2, 2, 1, zero_optimization={"stage": 2, "offload_param": CPU}, about="stage 2, offload_param")
    yield case(8, 2, 2, 1, zero_optimization={"stage": 1, "offload_optimizer": CPU}, about="stage 1, offload_optimizer")
    yield case(8, 2, 2, 1, zero_optimization={"stage": 0, "offload_optimizer": CPU}, about="stage 0, offload_optimizer")
    yield case(8, 2, 1, 1, zero_optimization=OFFLOADED, about="stage 3 with both offloads")
    yield case(8, 2, 1, 2, zero_optimization={"stage": 0}, about="stage 0")
    yield case(8, 2, 2, 2, about="no section for ZeRO")
    yield case(8, 2, 1, 3, zero_optimization=OFFLOADED | KEPT, about="stage 3 with both offloads and other keys")
    yield case(24, 3, 3, 1, zero_optimization={"stage": 2}, about="stage 2")
    yield case(12, 4, 3, 1, **BOTH, about="fp16 and bf16")
    yield case(12, 4, 2, 1, fp16={"enabled": True}, about="fp16")
    yield case(12, 4, 2, 1, fp16={"enabled": True}, bf16={"enabled": False}, about="fp16, and bf16 is off")
    for draw in map(Random, range(12)):
        micro, dp = draw.randint(2, 9), draw.randint(1, 4)
        yield case(dp * draw.randint(5, 60), micro, dp)
    yield case(12, 5, 2, 1, steps_per_print=10, wall_clock_breakdown=True, about="with keys that are not broken")


def accepted(answer, said, dp, pp):
    """What comes of it, in words: DeepSpeed's, and each key."""
    rows, keys = said[BATCH] // dp, [BATCH, MICRO, STEPS, *LOOKED_AT, *flat(said)]

    def told(words, found):
        by_key = {path: str(found.get(path, "not there")) for path in keys}
        return {"what comes of it": words} | by_key | {"new keys": ", ".join(sorted(found.keys() - keys)) or "none"}

    try:
        mended = answer(said, dp, pp)
    except ValueError:
        return told("a ValueError, which is for a batch that dp ranks cannot share", {})
    if not isinstance(mended, dict):
        raise Malformed(f"it returned {kind(mended)}, where a configuration is right: a dict")
    try:
        Config({name: value for name, value in mended.items() if pp == 1 or name != ZERO}, f"dp={dp},pp={pp}")
        Config(mended, f"dp={dp}")
    except ConfigError as error:
        return told(f"an error, {error}", {})
    found = flat(mended)
    if found.get(BATCH) != said[BATCH]:
        other = f"{BATCH} of {found.get(BATCH)} in place of {said[BATCH]}"
        return told(f"it is accepted with a {other}: steps learn from other rows. The batch stays", found)
    if pp > 1 and found[f"{ZERO}.stage"] > 1:
        return told(f"an error: with a pipeline the stage is 1 at most, and here it is {found[f'{ZERO}.stage']}", {})
    micro = found.get(MICRO, 0)
    if any(each <= said[MICRO] and rows % each == 0 for each in range(micro + 1, rows + 1)):
        found[MICRO] = f"{micro}, and a larger one adds up, too"
    elif micro > said[MICRO]:
        found[MICRO] = f"{micro}, more than was said, which may not fit"
    return told("it is accepted", found)


def flat(said, path=""):
    """path -> value. An offload to nowhere is none, and off is as good as not there."""
    found = {} if path else {f"{ZERO}.stage": 0, "fp16.enabled": False, "bf16.enabled": False}
    for name, value in said.items():
        if isinstance(value, dict):
            found |= flat(value, f"{path}{name}.") if value.get("device") != "none" else {}
        else:
            found[f"{path}{name}"] = value
    return found


MICROS = "micro = max(each for each in range(1, said[MICRO] + 1) if rows % each == 0)"
RAISED = '        raise ValueError(f"{said[BATCH]} rows cannot be shared by {dp} ranks")\n'
SIZES = "    mended[MICRO], mended[STEPS] = micro, rows // micro\n"
PARAM = 'if stage < 3:\n        zero.pop("offload_param", None)\n'
FP16 = 'mended["fp16"]["enabled"] = False'


@exercise(
    title="A configuration that does not add up",
    minutes=20,
    difficulty=2,
    test_cases=test_cases,
    program=accepted,
    check_communication=False,  # an answer sends nothing
    targets=[
        Varied(
            "DeepSpeed accepts it, it learns the same, and holds no more at once, and no other key changes; on 1 to 4 "
            "ranks, with and without stages",
            variants=[
                (
                    "A smaller micro batch is halved here until it divides: the largest that divides is asked for",
                    MICROS,
                    "micro = next(said[MICRO] >> n for n in range(9) if rows % max(1, said[MICRO] >> n) == 0) or 1",
                ),
                (
                    "This micro batch is larger than the one that was said, and may not fit: take the largest that is "
                    "not",
                    MICROS,
                    "micro = min(each for each in range(min(said[MICRO], rows), rows + 1) if rows % each == 0)",
                ),
                (
                    "The micro batch is taken as it was said, whether it adds up or not: it has to divide the rows of "
                    "a rank",
                    MICROS,
                    "micro = said[MICRO]",
                ),
                (
                    "The micro batch has to divide the rows of a rank, and is compared with those of all",
                    MICROS,
                    "micro = max(each for each in range(1, said[MICRO] + 1) if said[BATCH] % each == 0)",
                ),
                (
                    "The micro batch becomes 1 where it does not divide: take the largest that does",
                    MICROS,
                    "micro = said[MICRO] if rows % said[MICRO] == 0 else 1",
                ),
                (
                    "The micro batch is the greatest common divisor: a larger one may divide, too",
                    MICROS,
                    "micro = __import__('math').gcd(rows, said[MICRO])",
                ),
                (
                    "Where accumulation is 1, it is written down, too",
                    SIZES,
                    SIZES + "    if mended[STEPS] == 1:\n        del mended[STEPS]\n",
                ),
                (
                    "The old gradient_accumulation_steps stays: it follows from the two others",
                    SIZES,
                    "    mended[MICRO], mended[STEPS] = micro, mended.get(STEPS, rows // micro)\n",
                ),
                (
                    "Where dp ranks cannot share the batch, a ValueError is right, and no other batch",
                    RAISED,
                    "        mended[BATCH] = rows * dp\n",
                ),
                (
                    "ValueError where the micro batch does not divide: take a smaller one",
                    MICROS,
                    "if rows % said[MICRO]:\n        raise ValueError(said)\n    micro = said[MICRO]",
                ),
                (
                    "A section that is not there, or stage 0, stays as it is: with a pipeline the stage is 1 at most, "
                    "and "
                    "may be less",
                    "if pp > 1 and stage > 1:",
                    "if pp > 1 and zero:",
                ),
                (
                    "offload_optimizer goes with any stage above 0: it is not broken there, and stays",
                    "if stage == 0:",
                    "if stage < 3:",
                ),
                (
                    "offload_optimizer goes with any stage above 0: it is not broken there, and stays",
                    "if stage == 0:",
                    "if stage < 2:",
                ),
                (
                    "offload_optimizer of stage 0 is left, and there are no shards that it could move",
                    "if stage == 0:",
                    "if False:",
                ),
                ("offload_param is of stage 3 alone: in stage 2 it is left here", "if stage < 3:", "if stage < 2:"),
                ("offload_param of stage 3 stays where stage 3 stays", "if stage < 3:", "if stage < 4:"),
                (
                    "The stage that is left with a pipeline counts: the offloads are looked at with the old one here",
                    'stage = zero["stage"] = 1',
                    'zero["stage"] = 1',
                ),
                (
                    "With a pipeline the stage becomes 0 here: 1 goes with it",
                    'stage = zero["stage"] = 1',
                    'stage = zero["stage"] = 0',
                ),
                (
                    "fp16 becomes false only where bf16 is enabled as well",
                    "if all(mended",
                    "if any(mended",
                    FP16,
                    'mended.setdefault("fp16", {})["enabled"] = False',
                ),
                ("Of fp16 and bf16 both stay enabled here", FP16, "pass"),
                ("The pipeline is left out: with it, the stage is 1 at most, and 2 is not", "stage > 1:", "stage > 2:"),
            ],
        ),
    ],
    mistakes=[
        mistake(
            "train_batch_size is what is learnt from, so it stays. The micro batch and accumulation follow",
            SIZES,
            "    mended[BATCH] = mended[MICRO] * mended.get(STEPS, 1) * dp\n",
        ),
        mistake(
            "Accumulation is of one rank, which has train_batch_size / dp rows",
            "rows, rest = divmod(said[BATCH], dp)",
            "rows, rest = said[BATCH], said[BATCH] % dp",
        ),
        mistake(
            "Stages of a pipeline work on the same rows, so they do not share the batch: only dp does",
            "rows, rest = divmod(said[BATCH], dp)",
            "rows, rest = divmod(said[BATCH], dp * pp)",
        ),
        mistake(
            "With a pipeline, the stage is 1 at most",
            "if pp > 1 and stage > 1",
            "if False",
        ),
        mistake("offload_param is of stage 3 alone: below it nothing is moved", PARAM, "pass\n"),
        mistake(
            "offload_optimizer goes with any stage above 0, with a pipeline, too: it is not broken, and stays",
            "if stage == 0:",
            "if stage == 0 or pp > 1:",
        ),
        mistake("fp16 is disabled, and the other keys of its section stay", FP16, 'del mended["fp16"]'),
        mistake(
            "Of fp16 and bf16 it is bf16 that stays, as it needs no scale",
            FP16,
            'mended["bf16"]["enabled"] = False',
        ),
    ],
    hints=[
        "Three sizes, one equation. Which of them changes what is learnt, which one what a rank holds at once, and "
        "which one neither?",
        "A rank has train_batch_size / dp rows in a step. Which micro batches, up to the one that was said, divide "
        "them? (With copy.deepcopy, nothing of the caller's is changed.)",
        "Then zero_optimization, in this order: with a pipeline, the stage is 1 at most; below stage 3 there is no "
        "offload_param; in stage 0 no offload_optimizer. Sections may be missing: said.get(name, {}).",
    ],
    why="A run that moves to other GPUs is where configurations break. DeepSpeed says that an equation does not hold, "
    "and leaves it to you which side of it is wrong.",
)
def mended_config(said, dp, pp):
    """Return a configuration that DeepSpeed accepts on ``dp`` data-parallel ranks, with a pipeline of ``pp`` stages,
    and that learns what ``said`` was meant to. ``said`` stays as it is.

    train_batch_size stays. The micro batch is the largest that is not above the one of ``said`` and with which all adds
    up, and gradient_accumulation_steps, whatever was said, follows and is written down. If dp ranks cannot share the
    batch, raise a ValueError.

    With a pipeline (pp > 1) the ZeRO stage is 1 at most. Below stage 3 offload_param is removed, which DeepSpeed would
    ignore there, and in stage 0 offload_optimizer. If fp16 and bf16 are both enabled, fp16.enabled becomes false. All
    other keys stay, those of the same section, too: nothing is mended that is not broken. ``said`` has train_batch_size
    and train_micro_batch_size_per_gpu; sections may be missing.
    """
    BATCH, MICRO = "train_batch_size", "train_micro_batch_size_per_gpu"
    STEPS = "gradient_accumulation_steps"
    # ? What stays, and what follows?
    mended = copy.deepcopy(said)
    rows, rest = divmod(said[BATCH], dp)
    if rest:
        raise ValueError(f"{said[BATCH]} rows cannot be shared by {dp} ranks")
    micro = max(each for each in range(1, said[MICRO] + 1) if rows % each == 0)
    mended[MICRO], mended[STEPS] = micro, rows // micro
    # ? What does not go together?
    zero = mended.get("zero_optimization", {})
    stage = zero.get("stage", 0)
    if pp > 1 and stage > 1:
        stage = zero["stage"] = 1
    if stage < 3:
        zero.pop("offload_param", None)
    if stage == 0:
        zero.pop("offload_optimizer", None)
    if all(mended.get(name, {}).get("enabled") for name in ("fp16", "bf16")):
        mended["fp16"]["enabled"] = False
    return mended
