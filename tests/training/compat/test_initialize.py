"""Loops as DeepSpeed's tutorials write them, with another import."""

import json
from argparse import Namespace

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.utils.data import TensorDataset

import tinydist
from tinydist.model import GPT, GPTConfig
from tinydist.training import initialize

TUTORIAL = """
import argparse

import torch
import deepspeed


def arguments(words):
    parser = argparse.ArgumentParser()
    parser.add_argument("--local_rank", type=int, default=-1)
    parser = deepspeed.add_config_arguments(parser)
    return parser.parse_args(words)


def main(words, net, trainset, folder):
    args = arguments(words)
    deepspeed.init_distributed()
    parameters = filter(lambda p: p.requires_grad, net.parameters())
    model_engine, optimizer, trainloader, _ = deepspeed.initialize(
        args=args, model=net, model_parameters=parameters, training_data=trainset
    )
    criterion, losses = torch.nn.CrossEntropyLoss(), []
    for epoch in range(2):
        for i, data in enumerate(trainloader):
            inputs, labels = data[0].to(model_engine.device), data[1].to(model_engine.device)
            outputs = model_engine(inputs)
            loss = criterion(outputs, labels)
            model_engine.backward(loss)
            model_engine.step()
            losses.append(loss.item())
        model_engine.save_checkpoint(folder, client_state={"epoch": epoch})
    return losses, model_engine
"""
OPTIMIZER = {"type": "Adam", "params": {"lr": 0.01, "weight_decay": 0.1}}
SAID = {"train_micro_batch_size_per_gpu": 4, "gradient_accumulation_steps": 2, "optimizer": OPTIMIZER}


def tutorial():
    module = {}
    exec(TUTORIAL.replace("import deepspeed", "import tinydist.training as deepspeed"), module)
    return module["main"]


def net():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 4))


def trainset(rows=32):
    draw = torch.Generator().manual_seed(1)
    return TensorDataset(torch.randn(rows, 8, generator=draw), torch.randint(4, (rows,), generator=draw))


@pytest.fixture
def words(tmp_path):
    def write(**said):
        (tmp_path / "ds_config.json").write_text(json.dumps(SAID | said))
        return ["--deepspeed", "--deepspeed_config", str(tmp_path / "ds_config.json")]

    return write


@pytest.mark.parametrize("zero", [0, 1, 2, 3])
def test_the_tutorials_loop_runs_when_its_import_is_changed(words, tmp_path, zero):
    given = words(zero_optimization={"stage": zero})

    def program():
        losses, engine = tutorial()(given, net(), trainset(), tmp_path / "saved")
        return losses, engine.global_steps, engine.get_global_grad_norm()

    results = tinydist.launch(program, 2, observe=False).results
    losses, norms = alone()
    assert [each[0] for each in results] == [pytest.approx(own, abs=1e-5) for own in losses]
    assert [each[1:] for each in results] == [(len(norms), pytest.approx(norms[-1], abs=1e-5))] * 2


def alone():
    """In plain torch: the losses of each rank's rows, and the norms."""
    module, data = net(), trainset()
    optimizer = torch.optim.AdamW(module.parameters(), **OPTIMIZER["params"])
    order = list(torch.utils.data.DistributedSampler(data, 1, 0))
    losses, norms = ([], []), []
    for _ in range(2):
        for first in range(0, 32, 16):
            for part in (0, 8):
                for rank in (0, 1):
                    inputs, labels = data[order[first + part + rank : first + part + 8 : 2]]
                    loss = nn.functional.cross_entropy(module(inputs), labels)
                    (loss / 4).backward()
                    losses[rank].append(loss.item())
            norms.append(nn.utils.clip_grad_norm_(module.parameters(), 1.0).item())
            optimizer.step()
            optimizer.zero_grad()
    return losses, norms


def made(said, model=None, **how):
    return initialize(model=model or net(), config=SAID | said, **how)[0]


def passes(engine, factor=1.0):
    """An accumulation: two passes, as many calls of ``step``."""
    inputs, labels = trainset()[dist.get_rank() * 4 : dist.get_rank() * 4 + 4]
    for _ in range(2):
        loss = nn.functional.cross_entropy(engine(inputs.to(engine.module[0].weight.dtype)).float(), labels)
        engine.backward(loss * factor)
        engine.step()
    return loss.item()


def test_step_counts_until_the_end_of_an_accumulation_and_rates_follow_the_steps():
    scheduler = {"type": "WarmupLR", "params": {"warmup_num_steps": 4, "warmup_type": "linear", "warmup_max_lr": 0.4}}

    def program():
        engine, seen = made({"scheduler": scheduler}), []
        for _ in range(4):
            seen.append((engine.get_lr()[0], engine.global_steps, engine.is_gradient_accumulation_boundary()))
            passes(engine)
        return seen

    rates = [0.0, 0.0, 0.1, 0.2]
    assert tinydist.launch(program, 2, observe=False).results[1] == [
        (pytest.approx(r), n, False) for n, r in enumerate(rates)
    ]


def test_an_overflow_on_one_rank_skips_the_step_of_all_and_moves_neither_rate_nor_weights():
    said = {"fp16": {"enabled": True, "initial_scale_power": 8, "hysteresis": 1}, "zero_optimization": {"stage": 2}}

    def program():
        engine = made(said | {"scheduler": {"type": "WarmupLR", "params": {"warmup_num_steps": 4}}})
        passes(engine)
        passes(engine)
        before = engine.get_lr(), [each.clone() for each in engine.module.parameters()]
        passes(engine, float("inf") if dist.get_rank() else 1.0)
        same = [torch.equal(a, b) for a, b in zip(before[1], engine.module.parameters())]
        return engine.loss_scale, engine.skipped_steps, engine.global_steps, engine.get_lr() == before[0], all(same)

    assert tinydist.launch(program, 2, observe=False).results == [(128.0, 1, 3, True, True)] * 2


def test_what_is_saved_is_loaded_and_goes_on_to_the_same_losses(tmp_path):
    said = {"zero_optimization": {"stage": 3}}

    def program():
        engine = made(said)
        passes(engine)
        engine.save_checkpoint(tmp_path, client_state={"epoch": 7})
        expected, other = [passes(engine) for _ in range(2)], made(said)
        path, client = other.load_checkpoint(tmp_path)
        found = [passes(other) for _ in range(2)]
        return found == expected, path, client, other.global_steps, made(said).load_checkpoint(tmp_path / "none")

    path = str(tmp_path / "global_step1")
    assert tinydist.launch(program, 2, observe=False).results == [(True, path, {"epoch": 7}, 3, (None, None))] * 2


def test_pipelines_train_by_train_batch():
    def tokens(micro):
        draw = torch.Generator().manual_seed(micro)
        text = torch.randint(37, (4, 9), generator=draw)
        return text[:, :-1], text[:, 1:]

    def program(mesh):
        torch.manual_seed(0)
        model = GPT(GPTConfig(vocab_size=37, context=8, layers=2, heads=2, dim=8))
        engine, data = made({}, model, mesh=mesh), map(tokens, range(8))
        return [engine.train_batch(data).item() for _ in range(3)]

    one = tinydist.launch(program, 2, "pp=2", observe=False).results
    two = tinydist.launch(program, 4, "pp=2,tp=2", observe=False).results
    assert one[0] == one[1] == pytest.approx(two[3], abs=1e-5)


def test_an_optimizer_of_the_programs_takes_the_place_of_the_files():
    def program(said):
        module = net()
        optimizer = torch.optim.SGD(module.parameters(), lr=0.1)
        engine = made(said, module, optimizer=optimizer)
        return engine.get_lr()[0], type(engine.engine.zero[0].optimizer).__name__

    assert tinydist.launch(program, 2, {}, observe=False).results == [(0.1, "SGD")] * 2
    words = r"^initialize: zero_allow_untested_optimizer must be true for SGD with ZeRO\(2\), as in DeepSpeed"
    with pytest.raises(ValueError, match=words):
        tinydist.launch(program, 2, {"zero_optimization": {"stage": 2}}, observe=False)


@pytest.mark.parametrize(
    "given, words",
    [
        (
            dict(model=None, config=SAID),
            "initialize: pass a model, and a config that has the scheduler; model is",
        ),
        (
            dict(model=net(), args=Namespace()),
            "initialize: pass a model, and a config that has the scheduler; conf",
        ),
        (
            dict(model=net(), config={"train_batch_size": 4}),
            "initialize: pass optimizer=, or set optimizer in the config",
        ),
        (dict(model=net(), config=SAID | {"train_batch_size": 4}), "ds_config: train_batch_size(4) must be"),
    ],
)
def test_what_cannot_be_initialized_says_why(given, words):
    with pytest.raises(ValueError) as error:
        tinydist.launch(lambda: initialize(**given), 1, observe=False)
    assert str(error.value).startswith(words)
