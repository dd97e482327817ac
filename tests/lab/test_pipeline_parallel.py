"""The exercises on pipeline parallel: what they are judged by is right, and other right answers pass."""

import copy
import math
from functools import partial

import matplotlib.pyplot as plt
import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st
from visuals.drawn import written

from tinydist.lab import judge
from tinydist.pipeline_parallel import Costs, Schedule, analyze, find_schedule, make_schedule, parse, verify, with_steps
from tinydist.pipeline_parallel.published_pipelines import ZERO_BUBBLE
from tinydist.syllabus.registry import find, load


def of(name):
    """The module of an exercise, or what it shares with others."""
    later = name in ("interleaved", "least_bubble", "choices", "end_of_step", "missing_seconds")
    return load("08b_pipeline_schedules" if later else "08_pipeline_parallel", name)


def schedule_of(name, ranks, *more, stages=None):
    """The reference's."""
    programs = [map(parse, find(name).reference(rank, ranks, *more)) for rank in range(ranks)]
    return verify(Schedule(name, tuple(map(tuple, programs)), stages or ranks, more[0]))


LEAST, first_worse = of("least_bubble"), of("choices").first_worse
designed = partial(schedule_of, "least_bubble")


@pytest.mark.parametrize("size", LEAST.SECONDS)
def test_the_solution_takes_what_is_said_and_a_search_finds_nothing_shorter(size):
    ranks, microbatches, budget, message = size
    costs = Costs(message=message)
    assert analyze(designed(*size), costs).makespan == LEAST.SECONDS[size]
    searched = find_schedule(range(ranks), microbatches, costs, most_activations=budget)
    assert analyze(searched, costs).makespan >= LEAST.SECONDS[size]


@pytest.mark.parametrize("size", LEAST.SECONDS)
def test_the_solution_leaves_nothing_better(size):
    schedule, (*_, budget, message) = designed(*size), size
    assert first_worse(schedule, analyze(schedule, Costs(message=message)), budget, message) == ""


def any_schedule(data, ranks, microbatches, budget, message):
    """Each second, each rank draws one of the passes that it can do, or none."""
    programs, ends, now = [[] for _ in range(ranks)], {}, 0
    did = [dict.fromkeys("FIW", 0) for _ in range(ranks)]
    while any(done["W"] < microbatches for done in did):
        for rank, done in enumerate(did):
            can = []
            if done["F"] < microbatches and done["F"] - done["W"] < budget:
                can += "F" if not rank or ends.get((rank - 1, "F", done["F"]), now + 1) <= now else ""
            if done["I"] < done["F"]:
                can += "I" if rank == ranks - 1 or ends.get((rank + 1, "I", done["I"]), now + 1) <= now else ""
            can += "W" if done["W"] < done["I"] else ""
            if can:
                kind = data.draw(st.sampled_from(can))
                programs[rank].append(parse(f"{rank}{kind}{done[kind]}"))
                ends[rank, kind, done[kind]] = now + 1 + message
                done[kind] += 1
        now += 1
    return verify(Schedule("any", tuple(map(tuple, programs)), ranks, microbatches), budget)


@given(st.data())
def test_a_bubble_has_a_reason(data):
    """What takes longer than the solution could have done another pass, somewhere."""
    ranks, message = data.draw(st.integers(1, 4)), data.draw(st.integers(0, 2))
    budget = 1 + (1 + message) * (ranks - 1)
    schedule = any_schedule(data, ranks, microbatches := data.draw(st.integers(ranks, 6)), budget, message)
    costs = Costs(message=message)
    found, least = analyze(schedule, costs), analyze(designed(ranks, microbatches, budget, message), costs)
    if found.makespan > least.makespan:
        assert "rank " in first_worse(schedule, found, budget, message)


# Interleaved: what the reference takes, as a formula.


@pytest.mark.parametrize("P, M, v", of("interleaved").SIZES)
def test_interleaved_takes_what_is_said(P, M, v):
    """A last rank's first backward needs P microbatches in each of its stages; a rank k before it has k more on their
    way down, and k on their way back."""
    asked = schedule_of("interleaved", P, M, v, stages=P * v)
    assert asked.programs == make_schedule("interleaved 1F1B", P, M, v).programs
    assert analyze(asked).peak == [min((v - 1) * P + 2 * (P - 1 - rank), v * M - 1) + 1 for rank in range(P)]
    assert analyze(asked, Costs(1, 1, 1)).makespan == 3 * (M * v + P - 1)
    one_way = 2 * (v * P - 1) * 0.25 if P > 1 else 0
    assert analyze(asked, Costs(1, 1, 1, message=0.25)).makespan == 3 * (M * v + P - 1) + one_way


# 1F1B, where messages take time.


def late(warm_ups, microbatches, message):
    """Its seconds, with so many forwards ahead on each rank."""
    programs = []
    for rank, ahead in enumerate(min(each, microbatches) for each in warm_ups):
        forwards, backwards = ([parse(f"{rank}{kind}{each}") for each in range(microbatches)] for kind in "FB")
        turns = [each for pair in zip(forwards[ahead:], backwards) for each in pair]
        programs.append((*forwards[:ahead], *turns, *backwards[microbatches - ahead :]))
    schedule = Schedule("late", tuple(programs), len(warm_ups), microbatches)
    return analyze(verify(schedule), Costs(message=message)).makespan


@pytest.mark.parametrize("P, M, message", of("one_f_one_b").SIZES)
def test_1f1b_takes_what_is_said(P, M, message):
    asked = schedule_of("one_f_one_b", P, M, message)
    step = 1 + math.ceil(2 * message / 3)
    assert analyze(asked).peak == [min((P - 1 - rank) * step + 1, M) for rank in range(P)]
    assert analyze(asked, Costs(message=message)).makespan == (P - 1) * (3 + 2 * message) + 3 * M


@pytest.mark.parametrize("P", [2, 3, 5])
@pytest.mark.parametrize("message", [0, 0.1, 1, 1.5, 1.6, 3, 4])
def test_one_forward_less_on_any_rank_takes_longer(P, message):
    step, M = 1 + math.ceil(2 * message / 3), 160
    enough = [(P - 1 - rank) * step for rank in range(P)]
    shortest = late(enough, M, message)
    assert shortest == pytest.approx((P - 1) * (3 + 2 * message) + 3 * M)
    for rank in range(P - 1):
        less = [*enough[:rank], *[min(each, enough[rank] - 1) for each in enough[rank:]]]
        assert late(less, M, message) > shortest + 0.1


# GPipe, executed.


@pytest.mark.parametrize("P, M", [(3, 4), (4, 2), (1, 3)])
def test_executed_is_a_plain_model(P, M):
    gpipe = of("gpipe")
    with torch.random.fork_rng():
        torch.manual_seed(0)  # as ranks begin
        model = [torch.nn.Linear(gpipe.WIDTH, gpipe.WIDTH)]
        inputs, targets = torch.randn(2, gpipe.ROWS * M, gpipe.WIDTH)
    model += [copy.deepcopy(model[0]) for _ in range(P - 1)]
    loss = F.mse_loss(torch.nn.Sequential(*model)(inputs), targets)
    loss.backward()
    asked = schedule_of("gpipe", P, M)
    results = gpipe.executed(asked)
    for stage, (*gradients, _) in zip(model, results):
        torch.testing.assert_close(gradients, [each.grad for each in stage.parameters()])
    torch.testing.assert_close(results[-1][-1], loss.detach())
    assert analyze(asked, Costs(1, 1, 1)).makespan == 3 * (M + P - 1) + M - 1
    assert analyze(asked).peak == [1] * P


# The worker.


def test_the_worker_is_a_plain_model():
    exercise, mended = find("mended_pipeline"), of("mended_pipeline")
    returned = exercise.right(mended.case(3, 4)).returned
    model = torch.nn.Sequential(*[mended.Stage(number, torch.float32) for number in range(3)])
    inputs, targets = map(torch.cat, zip(*mended.batch(4)))
    loss = F.mse_loss(model(inputs), targets)
    loss.backward()
    for stage, found in zip(model, returned):
        for number, weight in enumerate(stage.weights):
            torch.testing.assert_close(found[f"weights[{number}].grad"], weight.grad)
    assert returned[-1]["what is returned"] == pytest.approx(loss.item())


@pytest.mark.parametrize("P, M", of("mended_pipeline").SIZES)
def test_a_forward_takes_a_second_and_a_backward_two(P, M):
    """A rank's first layer has no gradient of an input to compute on the first stage: 1/8 of a forward less."""
    exercise, mended = find("mended_pipeline"), of("mended_pipeline")
    (time,) = (target for target in exercise.targets if target.name == "time")
    short = (M if P == 1 else 1) / mended.LAYERS
    assert time.seen(exercise.right(mended.case(P, M))) == [pytest.approx(3 * (M + P - 1) - short)]


def test_the_worker_that_is_given_hangs_on_what_crosses():
    """With one microbatch nothing does: then it ends."""
    exercise, case = find("mended_pipeline"), of("mended_pipeline").case
    bugs = [each for each in exercise.mistakes if each.given]
    assert "DeadlockError" in repr(exercise.run(case(2, 2), *bugs).error)
    assert exercise.run(case(2, 1), *bugs).error is None


# The end of a step, and what is missing in it.


@pytest.mark.parametrize("name, seconds", [("ZB-H2", 1), ("1F1B", 1), ("ZB-H1", 1), ("ZB-V", 0.5)])
def test_the_end_of_a_step_is_that_of_many_steps(name, seconds):
    """As `analyze` has it for many steps, one after another."""
    begins, ends = of("end_of_step").of(name, 4, 8, seconds)
    asked = find("end_of_step").reference(begins, ends, 1.0, 10.0)
    costs = Costs(seconds, seconds, seconds, step=seconds)  # of a stage
    for checked, period in zip(("before", "after"), asked):
        steps = [with_steps(make_schedule(name, 4, 8), count, checked) for count in (4, 5)]
        four, five = (analyze(each, costs).makespan for each in steps)
        assert five - four == pytest.approx(period)


def test_causes_that_were_put_in_are_found():
    missing = of("missing_seconds")
    causes = find("missing_seconds").reference(*missing.made_up(4, 0.08, 2, 1.05, 0.002, 0.05))
    assert causes[:3] == pytest.approx((1.05, 0.002, 0.05), rel=0.05) and abs(causes[3]) < 0.01


def test_what_is_said_of_the_published_steps():
    found = {name: find("missing_seconds").reference(*of("missing_seconds").published(name)) for name in ZERO_BUBBLE}
    messages = [each[1] / ZERO_BUBBLE[name].milliseconds[0][3] * 1e3 for name, each in found.items()]
    assert all(1.015 < each[0] < 1.055 and abs(each[3]) < 0.027 for each in found.values())
    assert all(0.75 < each < 2.35 for each in messages)


# The pictures.


def test_what_is_wrong_is_drawn(capsys):
    def gpipe(rank, ranks, microbatches):
        return [f"{rank}{kind}{each}" for each in range(microbatches) for kind in "FB"]

    figure = judge(gpipe).wrong.picture()
    assert "gpipe, 3 ranks, 4 microbatches: 36 s, 67 % of it idle" in capsys.readouterr().out
    assert all(written(figure).count(str(microbatch)) >= 3 * 2 for microbatch in range(4))
    plt.close(figure)
