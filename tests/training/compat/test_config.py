"""DeepSpeed's ds_config.json as it stands: what it says, what it may not say, and what means nothing here."""

import json
from argparse import Namespace

import pytest
import torch
from hypothesis import given, settings
from training.compat.ds_configs import CIFAR, GETTING_STARTED, TRAINER, mutated

import tinydist
from tinydist.__main__ import main
from tinydist.model import GPT, GPTConfig
from tinydist.precision import HysteresisLossScale, StaticLossScale
from tinydist.training import Config, Plan, parallelize
from tinydist.training.compat.ds_file import ConfigError, paths
from tinydist.training.compat.ds_keys import AUTO, KEYS, REMOVED

OPTIONS = dict(batch=8, dp=2, pp=1, microbatches=2, max_norm=None, lr=0.01, warmup_steps=3, steps=20, precision="bf16")
COMMAND_LINE = Namespace(**OPTIONS, zero=0, dim=16)
TINY = "--model layers=2,dim=16,heads=2,context=8 --batch 8 --steps 2"


def refusal(said, mesh="dp=4", **how):
    with pytest.raises(ConfigError) as error:
        Config(said, mesh, **how)
    return str(error.value).removeprefix("ds_config: ")


def of_8(**said):
    return {"train_batch_size": 8} | said


# What it says.


def test_the_reuse_distance_is_of_stage_3_and_a_billion_by_default():
    def numbers(**zero):
        return Config(of_8(zero_optimization=zero)).numbers

    assert numbers(stage=3)["max_reuse_distance"] == 1e9
    assert numbers(stage=3, stage3_max_reuse_distance=0)["max_reuse_distance"] == 0
    assert "max_reuse_distance" not in numbers(stage=2, stage3_max_reuse_distance=0)
    ignored = Config(of_8(zero_optimization={"stage": 2, "stage3_max_reuse_distance": 0})).ignored
    assert ignored.keys() == {"zero_optimization.stage3_max_reuse_distance"}


def sent_in_stage_3(**zero):
    said = {"train_batch_size": 4, "train_micro_batch_size_per_gpu": 1} | {"zero_optimization": {"stage": 3, **zero}}

    def program():
        config = Config(said, "dp=2")
        model = GPT(GPTConfig(vocab_size=64, context=8, layers=2, heads=2, dim=16))
        engine = parallelize(model, config.plan, config.optimizer_class, **config.options, **config.numbers)
        tokens = torch.zeros(2, 8, dtype=torch.int64)
        engine.step(tokens, tokens)
        tinydist.mark("second")
        engine.step(tokens, tokens)
        tinydist.mark("end")
        return sum(parameter.numel() for parameter in GPT(model.config).parameters())

    run = tinydist.launch(program, 2)
    return sum(run.between("second", "end").traffic[0]) / (4 * run.results[0] / 2)  # of N (p - 1)/p, in fp32


def test_in_stage_3_parameters_are_gathered_once_in_a_microbatch_unless_they_are_used_again_late():
    far, near = sent_in_stage_3(), sent_in_stage_3(stage3_max_reuse_distance=0)
    assert far == pytest.approx(2 * 2, rel=0.02)  # two microbatches, each a gather and a reduction
    assert near == pytest.approx(2 * 3, rel=0.02)


def test_the_configuration_of_the_getting_started_page():
    config = Config(GETTING_STARTED, "dp=2")
    assert config.plan == Plan(dp=2, zero=1, precision="fp16", max_norm=1.0)
    assert (config.batch, config.micro, config.accumulation) == (8, 4, 1)
    assert config.optimizer_class is torch.optim.AdamW  # of an Adam that is not told otherwise
    assert config.options == {"lr": 0.00015, "weight_decay": 0.0, "betas": (0.9, 0.999), "eps": 1e-8, "amsgrad": False}
    assert config.scaler_rule == HysteresisLossScale(
        2.0**16, window=1000, hysteresis=2, min_scale=1.0, consecutive=False
    )
    assert config.ignored == {}


def test_the_configuration_of_transformers_documentation_is_filled_from_the_command_line():
    config = Config(TRAINER, "dp=2", COMMAND_LINE)
    assert config.plan == Plan(dp=2, zero=2, microbatches=2, precision="bf16", max_norm=1.0, offload=True)
    assert (config.batch, config.micro, config.accumulation) == (8, 2, 2)
    assert [config.options_at(step)["lr"] for step in (0, 1, 4, 9)] == [0.0, 0.0, 0.01, 0.01]
    zero = ("offload_optimizer.pin_memory", "allgather_partitions", "allgather_bucket_size", "overlap_comm")
    more = ("reduce_scatter", "reduce_bucket_size", "contiguous_gradients")
    idle = {f"zero_optimization.{name}" for name in zero + more} | {"steps_per_print", "wall_clock_breakdown"}
    idle |= {f"fp16.{name}" for name in TRAINER["fp16"] if name != "enabled"}  # as it is bf16
    assert config.ignored.keys() == idle and all(config.ignored.values())


@pytest.mark.parametrize(
    "fp16, rule",
    [({"loss_scale": 128}, StaticLossScale(128.0)), ({"hysteresis": 1}, HysteresisLossScale(hysteresis=1))],
)
def test_a_scale_is_static_or_has_deepspeeds_rule(fp16, rule):
    assert Config(of_8(fp16={"enabled": True, **fp16})).scaler_rule == rule


@pytest.mark.parametrize("stage, hysteresis", [(0, 1), (1, 3), (2, 3), (3, 3)])
def test_hysteresis_is_of_zeros_optimizers_alone_as_in_deepspeed(stage, hysteresis):
    config = Config(of_8(fp16={"enabled": True, "hysteresis": 3}, zero_optimization={"stage": stage}))
    assert config.scaler_rule == HysteresisLossScale(hysteresis=hysteresis)
    assert ("fp16.hysteresis" in config.ignored) == (stage == 0)


@pytest.mark.parametrize(
    "given, adam, decay",
    [
        ({"type": "Adam"}, torch.optim.AdamW, 0.0),
        ({"type": "Adam", "params": {"adam_w_mode": False}}, torch.optim.Adam, 0.0),
        ({"type": "AdamW", "params": {"adam_w_mode": False}}, torch.optim.AdamW, 0.0),
        ({"type": "AdamW", "params": {"torch_adam": True}}, torch.optim.AdamW, 0.01),
    ],
)
def test_adam_is_the_one_that_deepspeed_takes(given, adam, decay):
    config = Config(of_8(optimizer=given))
    assert (config.optimizer_class, config.options["weight_decay"]) == (adam, decay)


def test_clipping_is_1_where_nothing_is_said_and_0_is_none():
    assert Config(of_8()).plan.max_norm == 1.0
    assert Config(of_8(gradient_clipping=0)).plan.max_norm is None


# Published by running DeepSpeed 0.19.8 with 4 ranks.
BATCHES = {
    (32, None, None): (32, 8, 1),
    (32, 4, None): (32, 4, 2),
    (None, 4, None): (16, 4, 1),
    (None, 4, 2): (32, 4, 2),
    (32, None, 2): (32, 4, 2),
    (30, None, None): "must be train_micro_batch_size_per_gpu(7) x gradient_accumulation_steps(1) x dp(4) = 28",
    (32, 3, None): "must be train_micro_batch_size_per_gpu(3) x gradient_accumulation_steps(2) x dp(4) = 24",
    (32, None, 3): "must be train_micro_batch_size_per_gpu(2) x gradient_accumulation_steps(3) x dp(4) = 24",
    (2, None, None): "must be train_micro_batch_size_per_gpu(0) x gradient_accumulation_steps(1) x dp(4) = 0",
    (None, None, 2): "train_batch_size or train_micro_batch_size_per_gpu must be given: train_batch_size = ",
}
SIZES = ("train_batch_size", "train_micro_batch_size_per_gpu", "gradient_accumulation_steps")


@pytest.mark.parametrize("sizes", BATCHES)
def test_two_sizes_of_batches_give_the_third_as_in_deepspeed(sizes):
    said = {name: size for name, size in zip(SIZES, sizes) if size}
    if isinstance(BATCHES[sizes], str):
        assert BATCHES[sizes] in refusal(said)
    else:
        config = Config(said, "dp=4")
        assert (config.batch, config.micro, config.accumulation) == BATCHES[sizes]


def test_a_file_is_read_as_its_contents(tmp_path):
    (tmp_path / "ds_config.json").write_text(json.dumps(CIFAR))
    assert Config(tmp_path / "ds_config.json").plan == Config(CIFAR).plan


# What it may not say.

REFUSED = {
    '{"train_batchsize": 8}': "train_batchsize is not a DeepSpeed key; did you mean train_batch_size",
    '{"stage": 2}': "stage is not a DeepSpeed key; did you mean zero_optimization.stage",
    '{"zero_optimization": {"stge": 2}}': "zero_optimization.stge is not a DeepSpeed key; did you mean "
    "zero_optimization.stage",
    '{"optimizer": {"params": {"lrr": 1}}}': "optimizer.params.lrr is not a DeepSpeed key; did you mean lr",
    '{"optimizer": {"params": {"max_grad_norm": 1}}}': "optimizer.params.max_grad_norm is not a DeepSpeed key; take "
    "gradient_clipping",
    '{"optimizer": {"type": "OneBitAdam"}}': "optimizer.type: OneBitAdam is DeepSpeed's own, not supported; supported",
    '{"optimizer": {"type": "Adm"}}': "optimizer.type must be one of adam, adamw, adagrad, SGD, RMSprop, got 'Adm'",
    '{"optimizer": 3}': "optimizer must be an object {...}, got 3",
    '{"scheduler": {"type": "WarmupDecayLR"}}': "scheduler.params.total_num_steps must be given for WarmupDecayLR",
    '{"scheduler": {"params": {}}}': None,
    '{"scheduler": {"params": {"warmup_min_lr": 0}}}': "scheduler needs a type",
    '{"gradient_clipping": "much"}': "gradient_clipping must be a finite number >= 0, got 'much'",
    '{"gradient_allreduce_op": "sum"}': "gradient_allreduce_op must be 'mean': gradients are averaged here, got 'sum'",
    '{"fp16": {"enabled": true}, "bf16": {"enabled": true}}': "fp16.enabled and bf16.enabled are mutually exclusive",
    '{"elasticity": {"enabled": false}}': "elasticity is removed from DeepSpeed 0.19.8: set train_batch_size",
    '{"zero_optimization": {"offload_optimizer": {"device": "nvme"}}}': "zero_optimization.offload_optimizer.device "
    "must be one of none, cpu, got 'nvme'",
    '{"zero_optimization": {"offload_optimizer": {"device": "cpu"}}}': "zero_optimization.offload_optimizer moves",
    '{"optimizer": {"type": "SGD"}, "zero_optimization": true}': "zero_allow_untested_optimizer must be true for SGD",
    '{"torch_autocast": {"enabled": true}}': "torch_autocast must be off: it is not supported here, got ",
    '{"torch_autocast": false}': "torch_autocast must be off: it is not supported here, got False",
    '{"tensorboard": {"enable": true}}': "tensorboard.enable is not a DeepSpeed key; did you mean tensorboard.enabled",
    '{"fp16": {"enabled": true, "loss_scale": 1e300}}': "fp16.loss_scale must be 0 (dynamic), or a number up to 3.4e38",
    '{"fp16": {"enabled": true, "loss_scale": false}}': "fp16.loss_scale must be 0 (dynamic), or a number up to 3.4e38",
    '{"comms_logger": null}': "comms_logger must be an object {...}, got None",
    '{"aio": {"block_size": 1.5}}': "aio.block_size must be an integer >= 1, got 1.5",
    '{"zero_optimization": {"reduce_bucket_size": 0.5}}': "zero_optimization.reduce_bucket_size must be an integer",
    '{"zero_optimization": {"stage": 2, "reduce_bucket_size": 5e8, "offload_param": null}}': None,
    '{"zero_optimization": {"stage": 2, "cpu_offload": true, "offload_optimizer": {"device": "cpu"}}}': (
        "zero_optimization.cpu_offload is deprecated, and cannot be given together with "
    ),
    '{"hybrid_engine": {"enabled": true}}': "hybrid_engine.enabled must be false: it is not supported here, got True",
    '{"optimizer": {"params": {"lr": "auto"}}}': 'optimizer.params.lr is "auto", which only a command line fills',
}


@pytest.mark.parametrize("said", REFUSED)
def test_what_cannot_be_is_refused_by_its_key_and_the_rule(said):
    said, words = {**json.loads(said), "train_batch_size": 8}, REFUSED[said]
    if words is None:
        Config(said)
    else:
        assert refusal(said).startswith(words)


def test_what_other_keys_leave_without_effect_is_listed():
    said = of_8(fp16={"loss_scale": 8}, dataloader_drop_last=True)
    assert Config(said).ignored == {"fp16.loss_scale": "fp16 is not enabled"}
    assert Config(said, "dp=2", COMMAND_LINE).ignored.keys() == {"fp16.loss_scale", "dataloader_drop_last"}


def test_an_auto_that_nothing_fills_is_refused():
    said = of_8(zero_optimization={"stage": "auto", "sub_group_size": "auto"})
    words = 'zero_optimization.sub_group_size is "auto", which no command-line option fills: set a value'
    assert refusal(said, "dp=2", auto=COMMAND_LINE) == words


def test_pipelines_with_zero_2_are_refused_as_in_deepspeed_unless_told():
    said = of_8(zero_optimization={"stage": 2})
    words = "zero_optimization.stage(2) must be below 2 with a pipeline, pp(2), as in DeepSpeed"
    assert refusal(said, "pp=2,dp=2").startswith(words)
    assert Config(said, "pp=2,dp=2", zero_in_pipelines=True).plan.zero == 2
    assert Config(of_8(zero_optimization={"stage": 1}), "pp=2,dp=2").plan.zero == 1


@pytest.mark.parametrize(
    "content, words",
    [
        ('{"train_batch_size": 8,}', "ds.json is not valid JSON: "),
        ('{"train_batch_size": 8, "train_batch_size": 4}', "train_batch_size is a duplicate key"),
        ("[8]", "ds.json must be an object {...}, got [8]"),
        (None, "ds.json: No such file or directory"),
    ],
)
def test_a_file_that_says_nothing_is_refused(tmp_path, content, words):
    if content:
        (tmp_path / "ds.json").write_text(content)
    assert words in refusal(str(tmp_path / "ds.json"))


def test_every_key_of_the_table_is_found_and_none_is_removed():
    assert not KEYS.keys() & REMOVED.keys()
    of_params = {path for path in AUTO if ".params." in path}
    assert AUTO.keys() - of_params <= set(paths())


def trains(said):
    """A step of it, on as many ranks as it wants: 2."""
    config = Config(said, "dp=2", COMMAND_LINE)
    if config.batch > 64:
        return
    tinydist.launch(a_step, 2, config, observe=False)


def a_step(config):
    torch.manual_seed(0)
    model = GPT(GPTConfig(layers=1, heads=2, dim=8, context=4))
    engine = parallelize(model, config.plan, config.optimizer_class, **config.options, **config.numbers)
    engine.set_options(**config.options_at(0))
    tokens = torch.arange(4 * config.batch // 2).view(-1, 4) % 256
    return engine.step(tokens, tokens)


def assert_it_trains_or_says_why(said):
    try:
        trains(said)
    except ConfigError as error:
        assert str(error).startswith("ds_config: ") and len(str(error).splitlines()) == 1
        keys = {each for path in [*paths(), *REMOVED] for each in path.split(".")}
        assert any(key in str(error) for key in keys) or "is not a DeepSpeed key" in str(error)


@settings(max_examples=100, deadline=None, derandomize=True, database=None)
@given(mutated())
def test_whatever_is_changed_it_trains_or_says_why(said):
    assert_it_trains_or_says_why(said)


@pytest.mark.exhaustive
@settings(max_examples=2000, deadline=None, database=None)
@given(mutated())
def test_whatever_is_changed_it_trains_or_says_why_2000_times(said):
    assert_it_trains_or_says_why(said)


# On the command line.


def train(words):
    return main(["train", *f"{TINY} {words}".split()])


@pytest.fixture
def file(tmp_path):
    (tmp_path / "ds_config.json").write_text(json.dumps(TRAINER))
    return tmp_path / "ds_config.json"


@pytest.mark.parametrize(
    "option, after",
    [
        ("--config", ""),
        ("--deepspeed", ""),
        ("--local_rank=0 --deepspeed --deepspeed_config", ""),
        ("--deepspeed_config", "--deepspeed"),
    ],
)
def test_the_command_takes_it_as_launchers_pass_it_and_lists_what_is_idle(file, capsys, option, after):
    assert train(f"{option} {file} --mesh dp=2 --warmup-steps 2 {after}") == 0
    first, *lines = capsys.readouterr().out.splitlines()
    assert first.startswith(f"{file}: accepted keys without effect here: zero_optimization.offload_optimizer.pin")
    assert lines[-1].startswith("steps 1 to 2: ")


def test_the_command_has_the_losses_of_the_same_options(tmp_path):
    optimizer = {"type": "Adam", "params": {"lr": 0.01, "weight_decay": 0.01}}
    said = of_8(zero_optimization={"stage": 1}, gradient_accumulation_steps=2, optimizer=optimizer)
    (tmp_path / "ds_config.json").write_text(json.dumps(said))
    mesh = "--mesh dp=2,tp=2 --history"
    assert train(f"--config {tmp_path}/ds_config.json {mesh} {tmp_path}/file") == 0
    assert train(f"--zero 1 --microbatches 2 --lr 0.01 --grad-clip 1 {mesh} {tmp_path}/options") == 0
    losses = [
        [json.loads(line)["loss"] for line in (tmp_path / name).read_text().splitlines()]
        for name in ("file", "options")
    ]
    assert losses[0] == losses[1]


@pytest.mark.parametrize(
    "words, error",
    [
        ("--zero 3", "ds_config: zero_optimization.stage is 2, but --zero says 3: they must agree"),
        ("--lr-schedule cosine", "ds_config: --lr-schedule cannot be passed together with scheduler.type 'WarmupLR'"),
        (
            "--mesh dp=3",
            "ds_config: train_batch_size(8) must be train_micro_batch_size_per_gpu(2) x gradient_accumulatio",
        ),
        (
            "--mesh pp=2",
            "ds_config: zero_optimization.stage(2) must be below 2 with a pipeline, pp(2), as in DeepSpeed",
        ),
    ],
)
def test_the_command_refuses_contradictions_in_a_line(file, capsys, words, error):
    assert train(f"--config {file} {words}") == 2
    out, err = capsys.readouterr()
    assert out == "" and err.startswith(error) and err.count("\n") == 1
