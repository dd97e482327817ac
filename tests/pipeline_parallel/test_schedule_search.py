"""Found schedules beside the published ones, beside all orders, and beside published measurements."""

import csv
from itertools import product
from pathlib import Path
from random import Random

import pytest
from pipeline_parallel.every_order import shortest
from sampled import sampled

from tinydist.pipeline_parallel import (
    Costs,
    analyze,
    find_schedule,
    make_schedule,
    schedule_search,
    verify,
    with_messages,
)
from tinydist.pipeline_parallel.list_scheduler import BranchAndBound, ListScheduler, Policy
from tinydist.pipeline_parallel.schedule import contiguous, looped, v_shape
from tinydist.pipeline_parallel.schedule_search import problem_of, repeatable

WHOLE = ("naive", "GPipe", "1F1B", "interleaved 1F1B", "looped BFS")
PUBLISHED = {
    contiguous: ("naive", "GPipe", "1F1B", "ZB-H1", "ZB-H2"),
    looped: ("interleaved 1F1B", "looped BFS"),
    v_shape: ("ZB-V", "DualPipeV"),
}
ALL = [(place, name) for place, names in PUBLISHED.items() for name in names]


@pytest.mark.parametrize("P, M", sampled([(3, 12)], [(2, 4), (4, 8), (3, 12)]))
@pytest.mark.parametrize("place, name", ALL)
def test_no_longer_than_the_published_in_no_more_memory(place, name, P, M):
    published = analyze(make_schedule(name, P, M))
    most = max(published.peak)
    found = verify(find_schedule(place(P), M, most_activations=most, halves=name not in WHOLE), most)
    verify(with_messages(found))
    assert analyze(found).makespan <= published.makespan


@pytest.mark.parametrize(
    "choice, without, placement, M, most, halves",
    [
        ("LEADS", (2.0, 1.0), v_shape(6), 12, 8, True),
        ("LEADS", (1.25, 1.0), v_shape(6), 12, 10, True),
        ("FIRST", ("F",), contiguous(4), 8, 3, True),
        ("FIRST", ("B",), looped(4), 8, 8, False),
    ],
)
def test_without_one_of_its_choices_the_search_finds_a_longer_one(
    choice, without, placement, M, most, halves, monkeypatch
):
    seconds = 4 / len(placement) if len(placement) > 4 else 1.0

    def found():
        costs = Costs(seconds, seconds, seconds)
        return analyze(find_schedule(placement, M, costs, most_activations=most, halves=halves), costs).makespan

    with_all = found()
    assert set(without) < set(getattr(schedule_search, choice))
    monkeypatch.setattr(schedule_search, choice, without)
    assert found() > with_all


@pytest.mark.parametrize("name, most", [("ZB-H1", 4), ("ZB-H2", 7)])
def test_zero_bubble_of_one_stage_a_rank_is_found(name, most):
    """In a rank's own span, too."""
    published = analyze(make_schedule(name, 4, 8))
    found = analyze(find_schedule(contiguous(4), 8, most_activations=most, skewed=True))
    assert max(found.idle_in_span) <= max(published.idle_in_span)


def cases(number):
    """Placement, microbatches, costs, memory, and the seconds of the published schedules that fit."""
    random = Random(0)
    for _ in range(number):
        place, P = random.choice(list(PUBLISHED)), random.randint(2, 8)
        M, each = random.randint(1, 4 * P), random.choice([1, 2, 3]) if place is looped else None
        placement = place(P, each) if each else place(P)
        unlike = random.choice([0, 0.3, 0.6])
        base = [random.uniform(0.5, 2) for _ in range(3)]
        seconds = [[one * (1 + random.uniform(-unlike, unlike)) for _ in placement] for one in base]
        costs = Costs(*seconds, message=random.choice([0, random.uniform(0, 0.3), random.uniform(0, 1)]))
        most = random.randint(len(placement) // P, int(2.5 * len(placement)))
        analyses = [analyze(schedule, costs) for schedule in published(PUBLISHED[place], P, M, each)]
        yield placement, M, costs, most, [found.makespan for found in analyses if max(found.peak) <= most]


def published(names, P, M, each):
    for name in names:
        try:
            yield make_schedule(name, P, M, each)
        except ValueError:
            assert name == "interleaved 1F1B"  # for M that does not divide into rounds


def beside_the_published(number):
    longer = []
    for placement, M, costs, most, published in cases(number):
        if published:
            found = verify(find_schedule(placement, M, costs, most_activations=most), most)
            longer.append(analyze(found, costs).makespan / min(published) - 1)
    assert sum(each > 0.03 for each in longer) <= 0.05 * len(longer) and max(longer) < 0.1
    return longer


def test_on_random_costs_and_memory_close_to_the_best_published_one():
    assert len(beside_the_published(12)) >= 6


@pytest.mark.exhaustive
def test_on_many_random_costs_and_memory_close_to_the_best_published_one():
    assert len(beside_the_published(450)) >= 300


def small_cases(number):
    random = Random(1)
    sizes = [
        (contiguous, 1, 4),
        (contiguous, 2, 4),
        (contiguous, 2, 3),
        (contiguous, 3, 2),
        (v_shape, 2, 2),
        (looped, 2, 2),
    ]
    for place, P, M in random.choices(sizes, k=number):
        placement = place(P)
        costs = Costs(*[[random.uniform(0.5, 2) for _ in placement] for _ in range(3)], random.choice([0, 0.3]))
        yield placement, M, costs, random.randint(len(placement) // P, len(placement) + 1), random.random() < 0.6


@pytest.mark.parametrize("number", sampled([20], [20, 60]))
def test_of_few_passes_as_short_as_the_shortest_of_all_orders(number):
    for placement, M, costs, most, halves in small_cases(number):
        found = verify(find_schedule(placement, M, costs, most_activations=most, halves=halves), most)
        least = shortest(problem_of(placement, M, costs, most, halves))
        assert analyze(found, costs).makespan == pytest.approx(least, rel=1e-9)


def test_no_order_is_found_where_none_is_shorter():
    problem = problem_of(contiguous(2), 3, Costs(), 2, True)
    assert BranchAndBound(problem, shortest(problem), 3000).programs is None
    assert BranchAndBound(problem, shortest(problem) + 1, 3000).makespan == shortest(problem)


HEADS, WIDTH = (
    {"1.5B": 24, "6.2B": 32, "14.6B": 40, "28.3B": 48},
    {"1.5B": 2304, "6.2B": 4096, "14.6B": 5120, "28.3B": 6144},
)
TABLE5 = list(csv.DictReader(Path(__file__).with_name("zero_bubble_table5_6.csv").open()))


def bubbles(row):
    """As in the paper: of a rank's span, the part that is not work; the last number of the name: memory, in P."""
    P, M = int(row["p"]), int(row["m"])
    kept = 32 / (34 + 5 * HEADS[row["model"]] * 1024 / WIDTH[row["model"]])  # table 1
    costs = Costs(float(row["TF"]), float(row["TB"]), float(row["TW"]), float(row["Tcomm"]), kept_for_weights=kept)
    work = M * (costs.forward + costs.backward_input + costs.backward_weight)
    for most in (P, 2 * P):
        found = analyze(find_schedule(contiguous(P), M, costs, most_activations=most, skewed=True), costs)
        assert max(found.peak) <= most + 1e-9
        yield 1 - work / max(float(end[-1] - start[0]) for start, end in zip(found.start, found.end))


@pytest.mark.parametrize(
    "row",
    [TABLE5[3], pytest.param(TABLE5[4], marks=pytest.mark.exhaustive)],
    ids=lambda row: f"{row['model']}-{row['m']}",
)
def test_no_larger_bubble_than_in_the_paper(row):
    """Qi et al., Zero Bubble Pipeline Parallelism, 2024, tables 5 and 6."""
    one, two = bubbles(row)
    assert one <= float(row["paper_ZB_1p"]) + 1e-4 and two <= float(row["paper_ZB_2p"]) + 1e-3


@pytest.mark.exhaustive
@pytest.mark.parametrize("row", TABLE5, ids=lambda row: f"{row['model']}-{row['m']}")
def test_a_bubble_close_to_the_papers_in_all_rows(row):
    """With more ranks the effort allows fewer policies."""
    one, two = bubbles(row)
    assert one <= float(row["paper_ZB_1p"]) + 1e-4 and two <= float(row["paper_ZB_2p"]) + 0.002


@pytest.mark.parametrize("P, M, most, half", [(4, 8, 6, 53), (4, 8, 4, 59), (8, 16, 8, 123)])
def test_half_and_a_third_of_the_memory_on_a_v(P, M, most, half):
    """V-Half and V-Min of Qi et al., Pipeline Parallelism with Controllable Memory, 2024. The makespans of their
    scheduler (sail-sg/zero-bubble-pipeline-parallelism@39f2c186) are 53, 59, 113 and 123."""
    found = verify(find_schedule(v_shape(P), M, most_activations=most), most)
    assert analyze(found).makespan <= half


@pytest.mark.parametrize(
    "place, most, costs",
    [(contiguous, 4, Costs()), (contiguous, None, Costs()), (v_shape, 8, Costs(1, 1.3, 0.6, message=0.2))],
)
def test_many_microbatches_repeat_what_few_do(place, most, costs, monkeypatch):
    """Each further one takes little more than the work of the slowest rank, and no more memory."""
    placement, P, M = place(4), 4, 24
    scheduled = set()

    class Noted(ListScheduler):
        def __init__(self, problem, policy):
            scheduled.add(problem.microbatches)
            super().__init__(problem, policy)

    monkeypatch.setattr(schedule_search, "EFFORT", 7_900)  # not enough for all
    monkeypatch.setattr(schedule_search, "ListScheduler", Noted)
    few_, many = (find_schedule(placement, m, costs, most_activations=most) for m in (M, M + 80 * 2 * P))
    assert max(scheduled) < 2 * M
    verify(many, most)
    work = (costs.forward + costs.backward_input + costs.backward_weight) * len(placement) / P
    more = analyze(many, costs).makespan - analyze(few_, costs).makespan
    assert more == pytest.approx(80 * 2 * P * work, rel=0.03)


def test_few_are_scheduled_and_their_number_differs_by_rounds():
    few = repeatable(problem_of(contiguous(4), 1001, Costs(), None, True)).microbatches
    assert (1001 - few) % 8 == 0 and few < 40


def test_a_policy_by_hand():
    """Each stage as far ahead as there are ranks from it to the last; weights only where nothing else is ready."""
    problem = problem_of(contiguous(2), 3, Costs(), 2, True)
    run = ListScheduler(problem, Policy("B", 0.0, (2, 1)))
    assert ["".join(kind for _, kind in program) for program in run.programs] == ["FFIWIFWIW", "FIFIWWFIW"]
    assert run.makespan == 11 and run.spans == [11, 9]


def test_stages_of_one_rank_do_not_keep_one_another_out():
    """Room for two, and each microbatch needs it twice: the second may begin only when the first is on its way back."""
    for placement, M, halves in product((looped(2), v_shape(2)), (1, 2, 5), (True, False)):
        verify(find_schedule(placement, M, most_activations=2, halves=halves), 2)


@pytest.mark.parametrize(
    "arguments, message",
    [
        (((0, 2), 4), r"placement must name every rank from 0 to 2, got \(0, 2\)"),
        (((0, 1, 0), 4, None), r"most_activations \(1\) must be >= 2, the stages of a rank"),
        (((0, 1), 0), "microbatches must be"),
        (((0, 1), 2**22), r"schedule too large: 2 stages x 4194304 microbatches \(limit: 4194304 passes\)"),
    ],
)
def test_impossible(arguments, message):
    with pytest.raises(ValueError, match=message):
        find_schedule(*arguments, most_activations=1)
