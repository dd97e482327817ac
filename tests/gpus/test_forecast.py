"""Forecasts (``gpus=True, fake=True``): what is on a GPU has no data, what is on the host has."""

import os
import time

import pytest
import torch
import torch.distributed as dist
from torch import nn

import tinydist
from tinydist.gpus.unknown import ForecastError, Unknown


def ready():
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    dist.init_process_group("nccl")


def launch(program, ranks=2, **options):
    return tinydist.launch(program, ranks, init=False, gpus=True, **options)


def train(wrap, build=lambda: nn.Sequential(*[nn.Linear(256, 256) for _ in range(6)])):
    def program():
        ready()
        torch.manual_seed(0)
        model = wrap(build().cuda())
        optimizer = torch.optim.AdamW(model.parameters(), 1e-2)
        for _ in range(3):
            model(torch.randn(8, 256, device="cuda")).square().mean().backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad()

    return program


def ddp(model):
    return nn.parallel.DistributedDataParallel(model, device_ids=[torch.cuda.current_device()], bucket_cap_mb=1)


def fsdp(model):
    for layer in model:
        torch.distributed.fsdp.fully_shard(layer)
    return torch.distributed.fsdp.fully_shard(model)


@pytest.mark.parametrize("wrap", [ddp, fsdp])
def test_a_forecast_holds_and_sends_what_the_numbers_would(wrap):
    real, fake = (launch(train(wrap), fake=fake) for fake in (False, True))
    assert fake.memory[0].at_peak == real.memory[0].at_peak
    rest = sum(map(sum, real.traffic)) - sum(map(sum, fake.traffic))
    assert 0 <= rest < 2000, "DDP's C++ sends shapes and the order of its buckets"
    steps = [[each.end for each in run.memory[0].named if "Optimizer.step" in each.name] for run in (real, fake)]
    (_, one, two), (_, three, four) = steps
    assert four - three == pytest.approx(two - one, rel=0.1)


def test_data_of_the_host_is_real_and_steers():
    def program():
        data = torch.arange(10)
        index = torch.tensor([3, 7])
        batch = torch.stack([data[i : i + 2] for i in index])
        moved = batch.cuda()
        return batch.tolist(), str(moved.device), tuple((moved.float() @ torch.ones(2, 5, device="cuda")).shape)

    assert launch(program, 1, fake=True).results == [([[3, 4], [7, 8]], "cuda:0", (2, 5))]


def test_parameters_keep_their_identity_when_they_move():
    def program():
        model = nn.Sequential(nn.Embedding(100, 16), nn.Linear(16, 100, bias=False))
        model[1].weight = model[0].weight
        before = list(model.parameters())
        model.to("cuda")
        return [a is b for a, b in zip(before, model.parameters(), strict=True)], model[1].weight is model[0].weight

    assert launch(program, 1, fake=True).results == [([True], True)]


def test_what_is_read_is_listed_with_its_line_and_prints_as_nan(capsys):
    def program():
        loss = torch.ones(3, device="cuda").sum()
        print(f"{loss.item():.2f} {loss.item() / 2:8.1f}|{loss:.3f}")
        return loss.cpu().tolist()

    run = launch(program, 1, fake=True)
    assert isinstance(run.results[0], Unknown)
    assert capsys.readouterr().out == "[rank 0] nan      nan|nan\n"
    lines = [site.rpartition(": ")[2] for site in run.record.reads]
    assert lines == ['print(f"{loss.item():.2f} {loss.item() / 2:8.1f}|{loss:.3f}")', "return loss.cpu().tolist()"]


@pytest.mark.parametrize(
    ("steer", "what"),
    [
        (lambda loss: loss.item() > 3, "compares"),
        (lambda loss: bool(loss.item()), "asks for the truth of"),
        (lambda loss: 1 if loss > 3 else 2, "needs"),
        (lambda loss: list(range(10))[: int(loss.item())], "counts by"),
        (lambda loss: torch.arange(10)[loss.long() : loss.long() + 2], "needs"),
        (lambda loss: range(loss.long()), "needs"),
    ],
)
def test_a_number_that_steers_is_an_error_with_its_line(steer, what):
    with pytest.raises(
        ForecastError, match=rf"line \d+, in <lambda>.*\n.*the program {what} a number that only the GPU"
    ):
        launch(lambda: steer(torch.ones(3, device="cuda").sum()), 1, fake=True)


def test_a_slice_by_a_number_of_the_gpu_is_refused_and_no_empty_batch():
    """The indices were drawn on the GPU: every batch would have been empty, without a FLOP."""

    def program():
        data = torch.arange(100)
        starts = torch.randint(90, (4,), device="cuda")
        return torch.stack([data[i : i + 8] for i in starts])

    with pytest.raises(ForecastError, match=r"data\[i : i \+ 8\]"):
        launch(program, 1, fake=True)


def test_a_number_that_is_given_steers():
    def program():
        loss = torch.ones(3, device="cuda").sum()
        return "big" if loss.item() > 3 else "small"

    assert launch(program, 1, fake=True, values={"loss": 4.0}).results == ["big"]
    assert launch(program, 1, fake=True, values={"loss": 1.0}).results == ["small"]
    with pytest.raises(ValueError, match=r"launch: values are what is read of fake GPUs, with gpus=True, fake=True"):
        launch(program, 1, values={"loss": 1.0})


def test_the_programs_clocks_are_virtual():
    def program():
        x = torch.ones(4096, 4096, device="cuda", dtype=torch.bfloat16)
        began, start, end = time.time(), torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        start.record()
        for _ in range(10):
            x @ x
        end.record()
        torch.cuda.synchronize()
        return time.time() - began, start.elapsed_time(end) / 1e3

    run = launch(program, 1, fake=True, cluster="A100 node")
    by_time, by_events = run.results[0]
    assert by_time == pytest.approx(by_events, rel=1e-4) and by_time == pytest.approx(run.seconds, rel=0.05)
    assert 10 * 2 * 4096**3 / by_time < 312e12


def test_objects_travel_with_their_data():
    def program():
        ready()
        objects = [None] * 2
        dist.all_gather_object(objects, {"rank": dist.get_rank()})
        shared = [dist.get_rank()]
        dist.broadcast_object_list(shared, src=1)
        return objects, shared

    assert launch(program, fake=True).results == [([{"rank": 0}, {"rank": 1}], [1])] * 2


def test_afterwards_tensors_have_data_again():
    launch(lambda: torch.ones(2, device="cuda") + 1, 1, fake=True)
    assert nn.Linear(2, 2).weight.sum().item() != 0 and time.time.__module__ == "time"
    assert tinydist.launch(lambda: (torch.ones(2) + 1).tolist(), 1).results == [[2.0, 2.0]]


def test_no_number_is_taken_for_nan_or_infinite():
    def program():
        loss = torch.ones(1, device="cuda").sum()
        return torch.isfinite(loss).item(), bool(torch.isnan(loss) or torch.isinf(loss)), bool(loss.isfinite())

    run = launch(program, ranks=1, fake=True)
    assert run.results == [(True, False, True)]
    assert run.replaced["torch.isnan"] == "taken to be False" and run.replaced["torch.isfinite"] == "taken to be True"


def test_parameters_that_are_drawn_on_their_shards():
    def program():
        ready()
        with torch.device("meta"):
            model = nn.Linear(8, 8)
        torch.distributed.fsdp.fully_shard(model)
        model.to_empty(device="cuda")
        model.reset_parameters()
        return tuple(model.weight.to_local().shape)

    run = launch(program, fake=True)
    assert run.results == [(4, 8), (4, 8)]


def test_a_checkpoint_without_data_is_not_written(tmp_path):
    def program():
        ready()
        model = torch.distributed.fsdp.fully_shard(nn.Linear(4, 4).cuda())
        torch.save({"model": [model.state_dict()]}, tmp_path / "model.pt")
        torch.save({"step": torch.tensor(3)}, tmp_path / "step.pt")
        return torch.load(tmp_path / "step.pt")["step"].item()

    run = launch(program, ranks=1, fake=True)
    assert run.results == [3] and [each.name for each in tmp_path.iterdir()] == ["step.pt"]
    assert run.replaced["torch.save"] == "no file: what is on a GPU has no data"
