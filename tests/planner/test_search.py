"""All plans of a cluster: what is found is the best of what fits, and says why."""

import csv
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest

from tinydist.__main__ import main
from tinydist.hardware import find_cluster
from tinydist.planner import FSDP, MEGATRON_LM, MODELS, TINYDIST, Model, Plan, evaluate, explain, find_model, search
from tinydist.planner.command import ON_512_H100S, WORST, train_line
from tinydist.training.command import options
from tinydist.training.job import Job

DATA = Path(__file__).parents[2] / "notebooks" / "data"
MODEL, CLUSTER = find_model("Llama 3 8B"), find_cluster("H100 pod").pod(2)


@pytest.fixture(scope="module")
def found():
    return search(MODEL, CLUSTER, batch=128)


def test_every_plan_has_all_devices_and_the_whole_batch(found):
    assert len(found.candidates) > 500
    assert {each.plan.ranks for each in found.candidates} == {16}
    assert {each.plan.batch for each in found.candidates} == {128}
    assert len({each.plan for each in found.candidates}) == len(found.candidates)


def test_the_best_is_the_fastest_that_fits(found):
    assert found.best.fits
    assert found.best.seconds == min(each.seconds for each in found.candidates if each.fits)


def test_no_plan_is_both_faster_and_smaller_than_one_of_the_front(found):
    assert len(found.front) > 3
    for a, b in pairwise(found.front):
        assert a.seconds <= b.seconds and a.memory.total > b.memory.total
    for each in found.candidates:
        assert any(a.seconds <= each.seconds and a.memory.total <= each.memory.total for a in found.front)


def test_what_is_fixed_is_so_in_all_plans():
    found = search(MODEL, CLUSTER, batch=128, tp=4, recompute="full", precision="fp16")
    chosen = {(each.plan.tp, each.plan.recompute, each.plan.precision) for each in found.candidates}
    assert chosen == {(4, "full", "fp16")}


def test_an_explanation_adds_up(found):
    best, second = found.fitting[:2]
    text = explain(best, second)
    assert f"{best.seconds:.3f} s per step" in text and f"{second.seconds - best.seconds:.3f} s slower" in text
    shares = [float(line.split()[-1].removesuffix("%")) for line in text.splitlines() if line.endswith("%")]
    assert sum(shares) == pytest.approx(200, abs=1.5)  # of the seconds, and of the bytes


def test_where_nothing_fits_the_smallest_is_named():
    found = search(find_model("Llama 3 405B"), find_cluster("H100 node"), batch=8)
    with pytest.raises(ValueError, match=r"none of \d+ plans fits: the smallest needs [\d.]+ GB on each device, which"):
        _ = found.best


def test_where_there_is_no_plan_the_equation_is_named():
    with pytest.raises(
        ValueError, match="there is no plan for DeepSeek-V3 on 8 devices with 64 sequences: FSDP: how it runs experts"
    ):
        search(find_model("DeepSeek-V3"), find_cluster("H100 node"), batch=64, program=FSDP, zero=3)


def test_more_devices_than_the_cluster_has():
    with pytest.raises(ValueError, match="2 nodes x 8 devices = 16, but 64 ranks were requested"):
        search(MODEL, CLUSTER, batch=128, devices=64)


def test_a_plan_that_is_chosen_by_hand_is_evaluated_alike(found):
    best = found.best
    again = evaluate(MODEL, Plan(**vars(best.plan)), CLUSTER)
    assert (again.seconds, again.memory) == (best.seconds, best.memory)


def test_the_command_shows_five_plans_the_reasons_and_the_cost(capsys, found):
    asked = ["plan", "--model", "llama-3-8b", "--cluster", "H100 pod", "--devices", "16", "--batch", "128"]
    assert main([*asked, "--tokens", "1e12", "--price", "2"]) == 0
    text = capsys.readouterr().out
    assert MEGATRON_LM.options(found.best.plan, MODEL) in text
    assert str(found.best.plan) in text and "GB at the peak" in text
    assert "1e+12 tokens: " in text and " GPU hours, " in text and " at 2.0 an hour" in text
    assert f"took {ON_512_H100S} times as long, the worst measured {WORST}" in text
    assert sum(line.endswith("sequences") and line.split()[0][0].isdigit() for line in text.splitlines()) == 5


def test_the_factors_of_the_cost_are_those_of_the_published_steps():
    with (DATA / "13_published.csv").open() as file:
        rows = [row for row in csv.DictReader(file) if not row["changed"] and "simulated" not in row["set"]]
    worst = min(float(row["worst"].rstrip("%")) for row in rows) / 100
    assert round(1 / (1 + worst), 2) == WORST
    with (DATA / "13b_llm_foundry_h100.csv").open() as file:
        row = next(row for row in csv.DictReader(file) if row["model"] == "70b" and row["gpus"] == "512")
    model = Model("70b", 80, 8192, 64, 50368, 2048)
    plan = Plan(dp=512, zero=3, precision="bf16", microbatch=8, recompute="full")
    cluster = find_cluster("H100 RoCE node").pod(64)
    predicted = evaluate(model, plan, cluster, replace(FSDP, attention=row["attention"])).seconds
    measured = plan.batch * model.tokens / float(row["tokens_per_second"])
    assert round(measured / predicted, 2) == ON_512_H100S


def words_of(line):
    return line.partition(" train ")[2].split()


def test_the_train_line_of_each_plan_says_that_plan():
    for each in search(MODEL, CLUSTER, batch=128, program=TINYDIST).candidates[::97]:
        assert Job(options().parse_args(words_of(train_line(each)))).plan == each.plan


def test_the_train_line_of_the_best_trains(capsys, monkeypatch):
    monkeypatch.setitem(MODELS, "tiny", Model("tiny", 4, 32, 4, 256, 16))
    assert main(["plan", "--model", "tiny", "--batch", "8", "--devices", "4", "--program", "tinydist"]) == 0
    line = capsys.readouterr().out.splitlines()[-1]
    assert main(["train", *words_of(line), "--steps", "1"]) == 0


@pytest.mark.parametrize(
    "wrong, words",
    [
        ("--model llama-9", "unknown model 'llama-9'"),
        ("--cluster laptop", "Measured: the efficiency of 1/8 of laptop CPU is not known, only that of A100, H100"),
        ("--program nemo", "unknown program 'nemo'; available: 'Megatron-LM', 'DeepSpeed', 'FSDP', 'torchtitan', 'ti"),
        ("--devices 0", "plan: --devices must be an integer >= 1, got 0"),
        ("--devices -8", "plan: --devices must be an integer >= 1, got -8"),
        ("--batch 0", "plan: --batch must be an integer >= 1, got 0"),
        ("--tokens nan", "plan: --tokens must be a finite number > 0, got nan"),
        ("--tokens -1", "plan: --tokens must be a finite number > 0, got -1.0"),
        ("--tokens 0", "plan: --tokens must be a finite number > 0, got 0.0"),
        ("--price nan", "plan: --price must be a finite number >= 0, got nan"),
        ("--watts inf", "plan: --watts must be a finite number >= 0, got inf"),
        ("--devices 1 --program FSDP", "search: none of 8 plans fits: the smallest needs"),
        ("--batch 3 --program FSDP", "there is no plan for Llama 3 8B on 32 devices with 3 sequences: "),
    ],
)
def test_the_command_says_what_is_wrong(wrong, words, capsys):
    assert main(["plan", "--model", "llama-3-8b", *wrong.split()]) == 1
    assert words in capsys.readouterr().out
