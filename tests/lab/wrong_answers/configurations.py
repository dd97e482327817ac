"""Wrong answers to the exercises of 11b_configurations: the property that rejects each, and what it is told."""

import copy

import torch
import torch.distributed as dist
from lab.registered import collection

WRONG_ANSWERS, wrong = collection()
BATCH, MICRO, STEPS = "train_batch_size", "train_micro_batch_size_per_gpu", "gradient_accumulation_steps"


# mended_config


@wrong("mended_config", "values", "an error, ds_config: train_batch_size")
def as_it_is(said, dp, pp):
    return said


@wrong("mended_config", "values", "it belongs to the caller")
def in_the_callers(said, dp, pp):
    if said[BATCH] % dp:
        raise ValueError
    rows = said[BATCH] // dp
    said[MICRO] = max(each for each in range(1, said[MICRO] + 1) if rows % each == 0)
    said[STEPS] = rows // said[MICRO]
    return said


@wrong("mended_config", "values", "train_batch_size is what is learnt from")
def another_batch(said, dp, pp):
    mended = copy.deepcopy(said)
    mended[BATCH] = said[MICRO] * said.get(STEPS, 1) * dp
    return mended


@wrong("mended_config", "values", "computes a row at a time")
def row_by_row(said, dp, pp):
    if said[BATCH] % dp:
        raise ValueError
    return said | {MICRO: 1, STEPS: said[BATCH] // dp}


@wrong("mended_config", "values", "With a pipeline, the stage is 1 at most")
def sizes_alone(said, dp, pp):
    if said[BATCH] % dp:
        raise ValueError
    rows = said[BATCH] // dp
    micro = max(each for each in range(1, said[MICRO] + 1) if rows % each == 0)
    return said | {MICRO: micro, STEPS: rows // micro}


@wrong("mended_config", "runs", "where a configuration is right: a dict")
def tells_sizes(said, dp, pp):
    return said[BATCH], said[MICRO], dp


@wrong("mended_config", "values", "a section that is there need not be enabled")
def disables_by_name(said, dp, pp):
    mended = mended_but_for_precision(said, dp, pp)
    if "bf16" in mended and "fp16" in mended:
        mended["fp16"]["enabled"] = False
    return mended


@wrong("mended_config", "values", "steps_per_print is gone")
def keeps_what_it_knows(said, dp, pp):
    known = (BATCH, MICRO, STEPS, "optimizer", "gradient_clipping", "zero_optimization", "fp16", "bf16")
    mended = mended_but_for_precision(said, dp, pp)
    if all(mended.get(name, {}).get("enabled") for name in ("fp16", "bf16")):
        mended["fp16"]["enabled"] = False
    return {name: value for name, value in mended.items() if name in known}


def mended_but_for_precision(said, dp, pp):
    if said[BATCH] % dp:
        raise ValueError
    mended, rows = copy.deepcopy(said), said[BATCH] // dp
    mended[MICRO] = max(each for each in range(1, said[MICRO] + 1) if rows % each == 0)
    mended[STEPS] = rows // mended[MICRO]
    zero = mended.get("zero_optimization", {})
    if pp > 1 and "stage" in zero:
        zero["stage"] = min(zero["stage"], 1)
    if zero.get("stage", 0) < 3:
        zero.pop("offload_param", None)
    if zero.get("stage", 0) == 0:
        zero.pop("offload_optimizer", None)
    return mended


# costly_key


def tried(said, path, value):
    section, _, rest = path.partition(".")
    return said | {section: tried(said.get(section, {}), rest, value) if rest else value}


@wrong("costly_key", "values", "A run ends when the fullest rank is out of memory")
def own_opinion(said, cheaper, peak):
    saved = {path: peak(said) - peak(tried(said, path, value)) for path, value in cheaper.items()}
    best = max(saved, key=saved.get)
    return (best, saved[best]) if saved[best] > 0 else (None, 0)


@wrong("costly_key", "values", "Find the fullest rank of each configuration first")
def most_of_any_rank(said, cheaper, peak):
    saved = torch.tensor([peak(said) - peak(tried(said, *each)) for each in cheaper.items()])
    dist.all_reduce(saved, op=dist.ReduceOp.MAX)
    best = int(saved.argmax())
    return (list(cheaper)[best], int(saved[best])) if saved[best] > 0 else (None, 0)


@wrong("costly_key", "values", "this is the last of them: take the first")
def the_last_of_equals(said, cheaper, peak):
    peaks = torch.tensor([peak(said), *(peak(tried(said, *each)) for each in cheaper.items())])
    dist.all_reduce(peaks, op=dist.ReduceOp.MAX)
    saved = (peaks[0] - peaks[1:]).tolist()
    best = max(range(len(saved)), key=lambda place: (saved[place], place))
    return (list(cheaper)[best], saved[best]) if saved[best] > 0 else (None, 0)


@wrong("costly_key", "values", "")
def always_the_stage(said, cheaper, peak):
    return "zero_optimization.stage", 0


@wrong("costly_key", "runs", "which is none of the keys that may change")
def a_key_of_its_own(said, cheaper, peak):
    return "everything", 0


@wrong("costly_key", "bytes", "are enough: one number for each that you try")
def all_gathered(said, cheaper, peak):
    own = torch.tensor([peak(said), *(peak(tried(said, *each)) for each in cheaper.items())])
    everybodys = [torch.empty_like(own) for _ in range(dist.get_world_size())]
    dist.all_gather(everybodys, own)
    dist.all_gather(everybodys, own)
    peaks = torch.stack(everybodys).amax(0)
    saved = peaks[0] - peaks[1:]
    best = int(saved.argmax())
    return (list(cheaper)[best], int(saved[best])) if saved[best] > 0 else (None, 0)


@wrong("costly_key", "runs", "where (key, bytes saved) is right")
def the_key_alone(said, cheaper, peak):
    return next(iter(cheaper))


# forward_step


def stepped(data_iterator, model, loss_of):
    batch = next(data_iterator)

    def loss_func(losses):
        loss = loss_of(batch, losses)
        told = loss.detach().clone()
        dist.all_reduce(told)
        return loss, {"lm loss": told / dist.get_world_size()}

    return model(batch["tokens"], labels=batch["labels"]), loss_func


@wrong("forward_step", "values", "This is a mean of means")
def as_in_2023(data_iterator, model):
    def loss_of(batch, losses):
        return (losses * batch["loss_mask"]).sum() / batch["loss_mask"].sum().clamp(min=1)

    return stepped(data_iterator, model, loss_of)


@wrong("forward_step", "values", "These are the tokens of this data rank")
def of_this_rank(data_iterator, model):
    def loss_of(batch, losses):
        masks = batch["step_masks"]
        return (losses * batch["loss_mask"]).sum() * len(masks) / masks.sum().clamp(min=1)

    return stepped(data_iterator, model, loss_of)


@wrong("forward_step", "values", "")
def all_places(data_iterator, model):
    return stepped(data_iterator, model, lambda batch, losses: losses.mean())


@wrong("forward_step", "runs", "without a gradient")
def detached(data_iterator, model):
    return stepped(data_iterator, model, lambda batch, losses: losses.detach().mean())


@wrong("forward_step", "runs", "where (output, loss_func) is right")
def the_output_alone(data_iterator, model):
    batch = next(data_iterator)
    return model(batch["tokens"], labels=batch["labels"])


@wrong("forward_step", "bytes", "and no masks or losses")
def masks_sent(data_iterator, model):
    def loss_of(batch, losses):
        masks = batch["step_masks"].clone()
        dist.all_reduce(masks)
        share = (losses * batch["loss_mask"]).sum() * len(masks) / masks.sum()
        return share * dist.get_world_size()

    return stepped(data_iterator, model, loss_of)
