"""Wrong answers to the exercises of 11b_configurations: the property that rejects each, and what it is told."""

import copy

import torch
import torch.distributed as dist
from lab.registered import collection, solved

WRONG_ANSWERS, wrong = collection()
BATCH, MICRO, STEPS = "train_batch_size", "train_micro_batch_size_per_gpu", "gradient_accumulation_steps"


# mended_config


@wrong("mended_config", "values", "zero_optimization.stage is '1', where '0' is right")
def stage_1_with_a_pipeline(said, dp, pp):
    return solved("mended_config", "if pp > 1 and stage > 1", "if pp > 1")(said, dp, pp)


@wrong("mended_config", "values", "it belongs to the caller")
def in_the_callers(said, dp, pp):
    if said[BATCH] % dp:
        raise ValueError
    rows = said[BATCH] // dp
    said[MICRO] = max(each for each in range(1, said[MICRO] + 1) if rows % each == 0)
    said[STEPS] = rows // said[MICRO]
    return said


@wrong("mended_config", "values", "zero_optimization.offload_optimizer.device is 'not there', where 'cpu' is right")
def a_new_section(said, dp, pp):
    anew = 'stage = 1\n        zero = mended["zero_optimization"] = {"stage": 1}'
    return solved("mended_config", 'stage = zero["stage"] = 1', anew)(said, dp, pp)


@wrong("mended_config", "values", "2 ranks, batch 12, micro batch 4")
def disables_by_name(said, dp, pp):
    mended = mended_but_for_precision(said, dp, pp)
    if "bf16" in mended and "fp16" in mended:
        mended["fp16"]["enabled"] = False
    return mended


@wrong("mended_config", "values", "steps_per_print is 'not there', where '10' is right")
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


@wrong("costly_key", "values", "994,000,000 bytes more on the fullest rank")
def the_largest_change(said, cheaper, peak):
    return solved("costly_key", "saved = peaks[0] - peaks[1:]", "saved = (peaks[0] - peaks[1:]).abs()")(
        said, cheaper, peak
    )


def tried(said, path, value):
    section, _, rest = path.partition(".")
    return said | {section: tried(said.get(section, {}), rest, value) if rest else value}


@wrong("costly_key", "values", "the key is 'zero_optimization.stage: ")
def always_the_stage(said, cheaper, peak):
    return "zero_optimization.stage", 0


@wrong("costly_key", "runs", "says 'everything'")
def a_key_of_its_own(said, cheaper, peak):
    return "everything", 0


@wrong("costly_key", "bytes", "sends 96 bytes")
def all_gathered(said, cheaper, peak):
    own = torch.tensor([peak(said), *(peak(tried(said, *each)) for each in cheaper.items())])
    everybodys = [torch.empty_like(own) for _ in range(dist.get_world_size())]
    dist.all_gather(everybodys, own)
    dist.all_gather(everybodys, own)
    peaks = torch.stack(everybodys).amax(0)
    saved = peaks[0] - peaks[1:]
    best = int(saved.argmax())
    return (list(cheaper)[best], int(saved[best])) if saved[best] > 0 else (None, 0)


@wrong("costly_key", "runs", "returned an object of type str")
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


@wrong("forward_step", "values", "28 of 28 numbers")
def all_places(data_iterator, model):
    return stepped(data_iterator, model, lambda batch, losses: losses.mean())


@wrong("forward_step", "runs", "without a gradient")
def detached(data_iterator, model):
    return stepped(data_iterator, model, lambda batch, losses: losses.detach().mean())


@wrong("forward_step", "runs", "returned a tensor")
def the_output_alone(data_iterator, model):
    batch = next(data_iterator)
    return model(batch["tokens"], labels=batch["labels"])


@wrong("forward_step", "values", "loss, its mean over microbatches and data ranks")
def value_summed_up(data_iterator, model):
    """Its gradient is that of this rank's share, and its value that of all ranks together."""
    output, right = solved("forward_step")(data_iterator, model)

    def loss_func(losses):
        loss, _ = right(losses)
        dist.all_reduce(loss.data)
        return loss, {"lm loss": loss.detach() / dist.get_world_size()}

    return output, loss_func


@wrong("forward_step", "bytes", "bytes")
def masks_sent(data_iterator, model):
    def loss_of(batch, losses):
        masks = batch["step_masks"].clone()
        dist.all_reduce(masks)
        share = (losses * batch["loss_mask"]).sum() * len(masks) / masks.sum()
        return share * dist.get_world_size()

    return stepped(data_iterator, model, loss_of)


# as_arguments


@wrong("as_arguments", "values", "an error, pretrain: --micro-batch-size must be given")
def says_nothing(said, dp):
    return ""


@wrong("as_arguments", "values", "betas is '(0.9, 0.999)', where '(0.9, 0.95)' is right")
def without_betas(said, dp):
    return solved("as_arguments", 'params.get("betas", (0.9, 0.999))', "(0.9, 0.999)")(said, dp)


@wrong("as_arguments", "values", "precision is 'bf16', where 'fp32' is right")
def enabled_if_it_is_there(said, dp):
    return solved("as_arguments", 'if said.get(name, {}).get("enabled")', "if name in said")(said, dp)


@wrong("as_arguments", "values", "learning rate after step")
def decays_by_a_cosine(said, dp):
    return solved("as_arguments", "--lr-decay-style constant", "--lr-decay-style cosine")(said, dp)
