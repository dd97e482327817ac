"""Configurations as DeepSpeed's and transformers' documentation has them, and what may go wrong in one."""

import copy

from hypothesis import strategies as some

GETTING_STARTED = {
    "train_batch_size": 8,
    "gradient_accumulation_steps": 1,
    "optimizer": {"type": "Adam", "params": {"lr": 0.00015}},
    "fp16": {"enabled": True},
    "zero_optimization": True,
}
CIFAR = {
    "train_batch_size": 4,
    "steps_per_print": 2000,
    "optimizer": {"type": "Adam", "params": {"lr": 0.001, "betas": [0.8, 0.999], "eps": 1e-8, "weight_decay": 3e-7}},
    "scheduler": {
        "type": "WarmupLR",
        "params": {"warmup_min_lr": 0, "warmup_max_lr": 0.001, "warmup_num_steps": 1000},
    },
    "wall_clock_breakdown": False,
}
TRAINER = {
    "fp16": {
        "enabled": "auto",
        "loss_scale": 0,
        "loss_scale_window": 1000,
        "initial_scale_power": 16,
        "hysteresis": 2,
        "min_loss_scale": 1,
    },
    "bf16": {"enabled": "auto"},
    "optimizer": {
        "type": "AdamW",
        "params": {"lr": "auto", "betas": "auto", "eps": "auto", "weight_decay": "auto"},
    },
    "scheduler": {
        "type": "WarmupLR",
        "params": {"warmup_min_lr": "auto", "warmup_max_lr": "auto", "warmup_num_steps": "auto"},
    },
    "zero_optimization": {
        "stage": 2,
        "offload_optimizer": {"device": "cpu", "pin_memory": True},
        "allgather_partitions": True,
        "allgather_bucket_size": 2e8,
        "overlap_comm": True,
        "reduce_scatter": True,
        "reduce_bucket_size": 2e8,
        "contiguous_gradients": True,
    },
    "gradient_accumulation_steps": "auto",
    "gradient_clipping": "auto",
    "steps_per_print": 2000,
    "train_batch_size": "auto",
    "train_micro_batch_size_per_gpu": "auto",
    "wall_clock_breakdown": False,
}
TUTORIALS = {"getting started": GETTING_STARTED, "CIFAR": CIFAR, "Trainer": TRAINER}

numbers = some.integers(-2, 9) | some.sampled_from([1e-3, 0.5, -0.1, 1e9, 2**70, float("inf"), float("nan")])
values = some.recursive(
    numbers | some.booleans() | some.none() | some.sampled_from(["auto", "cpu", "nvme", "Adam", "SGD", "OneCycle", ""]),
    lambda inner: some.lists(inner, max_size=2) | some.dictionaries(some.text(max_size=4), inner, max_size=2),
    max_leaves=4,
)


def places(given):
    """Each (section, key) of it."""
    for key, value in given.items():
        yield given, key
        if isinstance(value, dict):
            yield from places(value)


def without_auto(config):
    """What the file itself says, as DeepSpeed reads it: "auto" is for transformers."""
    said = {key: without_auto(value) if isinstance(value, dict) else value for key, value in config.items()}
    return {key: value for key, value in said.items() if value != "auto"}


@some.composite
def with_more_keys(draw, known):
    """A tutorial's configuration and one to three more keys that DeepSpeed knows, whatever their values."""
    config = without_auto(draw(some.sampled_from(list(TUTORIALS.values())))) | {"train_batch_size": 8}
    for path in draw(some.lists(some.sampled_from(known), min_size=1, max_size=3)):
        *sections, key = path.split(".")
        inside = config
        for section in sections:
            inside = inside.setdefault(section, {})
            if not isinstance(inside, dict):
                break
        else:
            inside[key + draw(some.sampled_from(["", "", "", "x"]))] = draw(values | some.sampled_from([True, 1.5, {}]))
    return config


@some.composite
def mutated(draw):
    """A tutorial's configuration with one to three things changed: a value, a name, a place; less, or more."""
    config = copy.deepcopy(draw(some.sampled_from(sorted(TUTORIALS, reverse=True)).map(TUTORIALS.get)))
    for _ in range(draw(some.integers(1, 3))):
        section, key = draw(some.sampled_from(list(places(config)) or [(config, "stage")]))
        change = draw(some.sampled_from(["value", "value", "misspelled", "gone", "moved", "more"]))
        value = section.get(key) if change in ("value", "more") else section.pop(key, None)
        if change in ("value", "more"):
            section[key if change == "value" else draw(some.text(max_size=9))] = draw(values)
        if change == "misspelled":
            section[key[:3] + key[4:]] = value
        if change == "moved":
            draw(some.sampled_from([each for each, _ in places(config)] or [config]))[key] = value
    return config
