"""Other right answers to the exercises of 11b_configurations: they must pass."""

import copy
import json

import torch
import torch.distributed as dist
from lab.registered import others

RIGHT_ANSWERS, right = others()
BATCH, MICRO, STEPS = "train_batch_size", "train_micro_batch_size_per_gpu", "gradient_accumulation_steps"


# mended_config


@right("mended_config")
def downwards(said, dp, pp):
    if said[BATCH] % dp:
        raise ValueError("rows are left over")
    mended, micro = json.loads(json.dumps(said)), said[MICRO]
    while said[BATCH] // dp % micro:
        micro -= 1
    mended |= {MICRO: micro, STEPS: said[BATCH] // dp // micro}
    zero = mended.setdefault("zero_optimization", {"stage": 0})
    zero["stage"] = min(zero["stage"], 1) if pp > 1 else zero["stage"]
    for name, least in (("offload_optimizer", 1), ("offload_param", 3)):
        if zero["stage"] < least and name in zero:
            del zero[name]
    if mended.get("bf16", {}).get("enabled"):
        mended["fp16"] = mended.get("fp16", {}) | {"enabled": False}
    return mended


@right("mended_config")
def by_accumulation(said, dp, pp):
    """The least accumulation whose micro batch is not too large."""
    rows, rest = divmod(said[BATCH], dp)
    if rest:
        raise ValueError
    steps = next(n for n in range(1, rows + 1) if rows % n == 0 and rows // n <= said[MICRO])
    zero = dict(said.get("zero_optimization", {}))
    if pp > 1 and zero.get("stage", 0) >= 2:
        zero["stage"] = 1
    stage = zero.get("stage", 0)
    zero = {
        name: value
        for name, value in zero.items()
        if stage >= {"offload_param": 3, "offload_optimizer": 1}.get(name, 0)
    }
    both = said.get("bf16", {}).get("enabled") and said.get("fp16", {}).get("enabled")
    mended = dict(said) | ({"fp16": {**said["fp16"], "enabled": False}} if both else {})
    return mended | {MICRO: rows // steps, STEPS: steps, "zero_optimization": zero}


@right("mended_config")
def devices_off(said, dp, pp):
    """An offload to nowhere is none."""
    assert dp * pp
    if said[BATCH] / dp != said[BATCH] // dp:
        raise ValueError
    mended = copy.deepcopy(said)
    rows = said[BATCH] // dp
    mended[MICRO] = [each for each in range(1, 1 + min(said[MICRO], rows)) if not rows % each][-1]
    mended[STEPS] = rows // mended[MICRO]
    if "zero_optimization" in said:
        zero = mended["zero_optimization"]
        zero["stage"] = zero["stage"] if pp == 1 else min(1, zero["stage"])
        if zero["stage"] != 3:
            zero["offload_param"] = {"device": "none"}
        if zero["stage"] == 0:
            zero["offload_optimizer"] = {"device": "none"}
    if "bf16" in said and said["bf16"]["enabled"]:
        mended.get("fp16", {}).pop("enabled", None)
    return mended


# costly_key


def changed(said, path, value):
    section, _, rest = path.partition(".")
    return said | {section: changed(said.get(section, {}), rest, value) if rest else value}


@right("costly_key")
def without_copies(said, cheaper, peak):
    peaks = torch.tensor([peak(said), *(peak(changed(said, *each)) for each in cheaper.items())])
    dist.all_reduce(peaks, dist.ReduceOp.MAX)
    before, *after = peaks.tolist()
    best = min(after)
    return (list(cheaper)[after.index(best)], before - best) if best < before else (None, 0)


@right("costly_key")
def one_after_the_other(said, cheaper, peak):
    def fullest(configuration):
        held = torch.tensor(peak(configuration), dtype=torch.float64)
        dist.all_reduce(held, op=dist.ReduceOp.MAX)
        return held.item()

    before, found, most = fullest(said), None, 0
    for path, value in cheaper.items():
        saved = before - fullest(changed(said, path, value))
        if saved > most:
            found, most = path, saved
    return found, most


@right("costly_key")
def with_a_dict(said, cheaper, peak):
    peaks = {None: peak(said)} | {path: peak(changed(said, path, value)) for path, value in cheaper.items()}
    held = torch.tensor(list(peaks.values()), dtype=torch.int64)
    dist.all_reduce(held, op=dist.ReduceOp.MAX)
    saved = dict(zip(peaks, (held[0] - held).tolist()))
    best = max(saved, key=saved.get)
    return [best, saved[best]]


# forward_step


@right("forward_step")
def a_weighted_mean(data_iterator, model):
    """The microbatch's mean, by its part of the tokens."""
    batch = next(data_iterator)
    mask = batch["loss_mask"]
    tokens, count = mask.sum(), batch["step_masks"].sum()

    def loss_func(losses):
        dist.all_reduce(count)
        part = tokens / count * len(batch["step_masks"]) * dist.get_world_size()
        loss = part * losses[mask.bool()].mean() if tokens else losses.sum() * 0
        told = loss.detach() / dist.get_world_size()
        dist.all_reduce(told.view(1))
        return loss, {"lm loss": told}

    return model(batch["tokens"], labels=batch["labels"]), loss_func


@right("forward_step")
def counted_with_the_loss(data_iterator, model):
    """One all-reduce of two numbers."""
    batch = next(data_iterator)

    def loss_func(losses):
        own = (losses * batch["loss_mask"]).sum()
        both = torch.stack([own.detach(), batch["step_masks"].sum()])
        dist.all_reduce(both)
        factor = len(batch["step_masks"]) / both[1]
        return own * factor * dist.get_world_size(), {"lm loss": both[0] * factor}

    return model(batch["tokens"], labels=batch["labels"]), loss_func


@right("forward_step")
def counted_before(data_iterator, model):
    batch = next(data_iterator)
    count = batch["step_masks"].sum()
    dist.all_reduce(count)
    weights = batch["loss_mask"] * (batch["step_masks"].shape[0] / count)

    def loss_func(losses):
        loss = torch.sum(losses * weights)
        told = loss.detach().clone()
        dist.all_reduce(told)
        return loss * dist.get_world_size(), {"lm loss": told.item()}

    return model(batch["tokens"], batch["labels"]), loss_func


# as_arguments


@right("as_arguments")
def by_a_table(said, dp):
    """Sizes by solving, names by a table, and no argument that is the default."""
    zero = said.get("zero_optimization", {}).get("stage", 0)
    kind = said.get("scheduler", {}).get("params", {})
    if zero in (2, 3) or ("scheduler" in said and kind.get("warmup_type") != "linear"):
        raise ValueError("cannot be said")
    batch = said[BATCH] if BATCH in said else said[MICRO] * said[STEPS] * dp
    micro = said[MICRO] if MICRO in said else batch // (dp * said[STEPS])
    params = dict(said["optimizer"]["params"])
    beta1, beta2 = params.pop("betas", (0.9, 0.999))
    values = {"micro-batch-size": micro, "global-batch-size": batch, "lr-decay-style": "constant"}
    values |= {"optimizer": "adam", "adam-beta1": beta1, "adam-beta2": beta2, "weight-decay": 0}
    values |= {{"eps": "adam-eps", "weight_decay": "weight-decay"}.get(name, name): params[name] for name in params}
    if kind:
        values |= {"lr": kind.get("warmup_max_lr", params["lr"]), "lr-warmup-iters": kind.get("warmup_num_steps", 1000)}
    if "gradient_clipping" in said:
        values["clip-grad"] = said["gradient_clipping"]
    flags = {"bf16": said.get("bf16", {}).get("enabled"), "fp16": said.get("fp16", {}).get("enabled")}
    flags["use-distributed-optimizer"] = zero
    named = [f"--{name} {value}" for name, value in values.items()]
    return " ".join(named + [f"--{name}" for name, on in flags.items() if on])
