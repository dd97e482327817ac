"""Curricula, random-LTD: those of DeepSpeed 0.19.8. Layer drop: 0.19.6's, the last version that has it. WSD:
Megatron-core's.

DeepSpeed's kernels for random-LTD would have to be compiled; what they do is written here with torch's operators. All
else runs as it is.
"""

import itertools
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from tinydist.model import GPT, GPTConfig
from tinydist.training.curriculum import fixed_discrete, fixed_linear, fixed_root
from tinydist.training.layer_drop import theta_schedule
from tinydist.training.lr_schedules import WSD_SHAPES, wsd
from tinydist.training.random_ltd import RandomLTD, kept_schedule, layer_tokens

DEEPSPEED_0_19_6 = Path(__file__).parents[2] / ".venv-systems" / "deepspeed-0.19.6"
STEPS = 130


def curriculum(kind, least, most, **options):
    from deepspeed.runtime.data_pipeline.curriculum_scheduler import CurriculumScheduler

    config = {"min_difficulty": least, "max_difficulty": most, "schedule_type": kind}
    return CurriculumScheduler(config | {"schedule_config": options})


def same_difficulties(theirs, ours):
    for step in range(STEPS):
        assert theirs.update_difficulty(step) == ours(step), step


@pytest.mark.parametrize("least, most, steps, multiple", [(8, 1024, 100, 8), (8, 64, 60, 16), (10, 100, 37, 8)])
def test_curricula_are_deepspeeds(systems, least, most, steps, multiple):
    options = dict(total_curriculum_step=steps, difficulty_step=multiple)
    same_difficulties(curriculum("fixed_linear", least, most, **options), fixed_linear(least, most, steps, multiple))
    for degree in (1, 2, 3):
        theirs = curriculum("fixed_root", least, most, root_degree=degree, **options)
        same_difficulties(theirs, fixed_root(least, most, steps, multiple, degree))


def test_discrete_and_custom_curricula_are_deepspeeds(systems):
    theirs = curriculum("fixed_discrete", 1, 3, difficulty=[1, 2, 3], max_step=[5, 10])
    same_difficulties(theirs, fixed_discrete([1, 2, 3], [5, 10]))
    custom = curriculum("custom", 1, 50)
    custom.set_custom_get_difficulty(own := lambda step: min(50, 1 + step // 2))
    same_difficulties(custom, own)


def ltd_scheduler(layers, dropping, least, most, steps, multiple, batch):
    from deepspeed.runtime.data_pipeline.data_routing.scheduler import RandomLTDScheduler

    schedule = {"min_value": least, "max_value": most, "schedule_type": "fixed_linear"}
    schedule["schedule_config"] = {"seq_per_step": multiple, "require_steps": steps}
    config = {"total_layer_num": layers, "random_ltd_layer_num": dropping, "global_batch_size": batch}
    config["layer_token_lr_schedule"] = {"enabled": False}
    return RandomLTDScheduler(config | {"random_ltd_schedule": schedule})


@pytest.mark.parametrize("least, most, steps, multiple", [(128, 2048, 100, 16), (16, 64, 70, 8), (20, 100, 41, 16)])
def test_kept_and_consumed_tokens_are_deepspeeds(systems, least, most, steps, multiple):
    theirs, ours = ltd_scheduler(24, 22, least, most, steps, multiple, 2), kept_schedule(least, most, steps, multiple)
    consumed = 0
    for step in range(STEPS):
        theirs.update_seq(step)
        assert theirs.get_current_seq() == ours(step)
        consumed += layer_tokens(2, ours(step), most, 22, 24)
        assert theirs.get_state()["consumed_layer_tokens"] == consumed


def kernels():
    """With the batch as the first dim."""

    def along(places, x):
        return places.long().unsqueeze(2).expand(-1, -1, x.shape[2])

    return SimpleNamespace(
        token_sort_=lambda places, length: places.sort(-1).values,
        token_gather=lambda x, places, batch_first: x.gather(1, along(places, x)),
        token_scatter_=lambda x, part, places, batch_first: x.scatter_(1, along(places, x), part),
    )


@pytest.mark.parametrize("kept", [1, 5, 11, 12])
def test_a_layer_and_its_gradients_are_deepspeeds(systems, kept, monkeypatch):
    from deepspeed.ops.random_ltd import dropping_utils
    from deepspeed.runtime.data_pipeline.data_routing.basic_layer import RandomLayerTokenDrop

    monkeypatch.setattr(dropping_utils, "random_ltd_module", kernels())
    torch.manual_seed(0)
    block = GPT(GPTConfig(context=12, dim=8, heads=2)).blocks[0]
    scheduler = ltd_scheduler(3, 1, kept, 12, 10, 1, 4)
    theirs, ours = RandomLayerTokenDrop(block), RandomLTD(block)
    names = {"model_mask_name": None, "micro_batch_size": 4, "hidden_state_order": "batch_seq_dim"}
    theirs.init_config(names | {"model_type": "decoder"}, scheduler, 0)
    ours.kept = kept
    x, weights = torch.randn(2, 4, 12, 8)
    found = []
    for layer in (theirs, ours):
        torch.manual_seed(1)
        given = x.clone().requires_grad_()
        # DeepSpeed's backward writes into the gradient that it gets: each has its own
        gradients = torch.autograd.grad(layer(given * 1.0), [given, *block.parameters()], weights.clone())
        torch.manual_seed(1)
        found.append([layer(x), *gradients])
    assert all(map(torch.equal, *found))


def test_theta_is_deepspeeds(systems):
    if not DEEPSPEED_0_19_6.exists():
        pytest.skip("DeepSpeed 0.19.6, the last version with progressive layer drop, is not installed: make systems")
    file = DEEPSPEED_0_19_6 / "deepspeed" / "runtime" / "progressive_layer_drop.py"
    module = module_from_spec(spec := spec_from_file_location("progressive_layer_drop", file))
    spec.loader.exec_module(module)
    for theta, gamma in itertools.product((0.0, 0.5, 0.9, 1.0), (0.0, 0.001, 0.1)):
        theirs, ours = module.ProgressiveLayerDrop(theta, gamma), theta_schedule(theta, gamma)
        for step in range(STEPS):
            theirs.update_state(step)
            assert theirs.get_theta() == pytest.approx(ours(step), rel=1e-15)  # NumPy's exp, and C's


@pytest.mark.parametrize("shape", WSD_SHAPES)
@pytest.mark.parametrize("warmup", [0, 5])
def test_wsd_is_megatrons(systems, warmup, shape):
    from megatron.core.optimizer_param_scheduler import OptimizerParamScheduler

    optimizer = torch.optim.SGD([torch.zeros(1)], lr=1.0)
    decay = (0.0, 0.0, 40, "constant", False)
    options = dict(wsd_decay_steps=10, lr_wsd_decay_style=shape)
    theirs = OptimizerParamScheduler(optimizer, 0.0, 0.3, 0.03, warmup, 40, "WSD", *decay, **options)
    ours = wsd(0.3, 40, warmup, 0.03, decay=0.25, shape=shape)
    for step in range(40):
        if step >= warmup:  # whose steps Megatron-LM counts from 0
            assert optimizer.param_groups[0]["lr"] == pytest.approx(ours(step), rel=1e-12)
        theirs.step(1)
