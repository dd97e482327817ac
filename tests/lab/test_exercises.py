"""The exercises and their notebooks: stubs are told "not yet", solutions pass, and the rest is the same."""

import ast
from dataclasses import replace

import nbformat
import pytest
import torch
import torch.distributed as dist
import torch.nn.functional as F
from lab.registered import solved
from lab.shipped import EXERCISES, ROOT

from tinydist import launch, mark
from tinydist.hardware import DEVICES, Cluster, costs, nccl
from tinydist.lab import judge
from tinydist.lab.costs import CLUSTER
from tinydist.lab.differences import close
from tinydist.lab.leaves import leaves
from tinydist.syllabus.registry import course, find, of_chapter
from tinydist.syllabus.saved_notebook import answer_in

CHAPTERS = sorted({exercise.chapter for exercise in course()})
EACH = pytest.mark.parametrize("name", [exercise.name for exercise in course()])
CHAPTER = pytest.mark.parametrize("chapter", CHAPTERS)


def notebook(folder, chapter):
    return nbformat.read(ROOT / folder / f"{chapter}.ipynb", as_version=4).cells


def tagged(cells):
    """name of the exercise -> place of its cell."""
    places = {cell.metadata["tags"][0]: place for place, cell in enumerate(cells) if cell.metadata.get("tags")}
    return {name: place for name, place in places.items() if not cells[place].id.endswith("-check")}


@EACH
def test_stub_is_told_not_yet(name):
    in_notebook = answer_in(EXERCISES / f"{find(name).chapter}.ipynb", name)
    assert judge(in_notebook).state == "not yet"


@EACH
def test_solution_passes(name):
    """As its notebook shows, which `make notebooks` runs."""
    cells = notebook("solutions", find(name).chapter)
    shown = cells[tagged(cells)[name] + 1].outputs[0]
    title, *lines = shown.data["text/plain"].splitlines()
    assert title == f"{name}: passed" and len(lines) > enough(find(name))
    assert all(" ok   " in line for line in lines)


def enough(exercise):
    """Targets. One of a few minutes may be about one thing."""
    return 2 if exercise.minutes > 10 else 1


@EACH
def test_what_a_reader_is_told(name):
    exercise = find(name)
    assert len(exercise.hints) >= 2 and len(exercise.table) >= enough(exercise) and exercise.why.count(".") >= 2
    assert 1 <= exercise.difficulty <= 5 and exercise.minutes > 0 and exercise.task


@EACH
def test_worlds_are_of_several_kinds(name):
    """Sizes of one kind would let an answer assume it."""
    sizes = {case.ranks for case in find(name).cases}
    assert len(find(name).cases) >= 5 and (sizes == {1} or {1, 2, 3} <= sizes)


@EACH
def test_what_is_sent_counts(name):
    """Where ranks send at all, there is a world where what one of them sends is changed on the way."""
    exercise = find(name)
    sends = any(any(map(any, exercise.right(case).run.traffic)) for case in exercise.cases if case.ranks > 1)
    assert not sends or exercise.hidden or not exercise.check_communication


@EACH
def test_what_is_changed_on_the_way_changes_the_results(name):
    """Else all that is sent in that world would be counts, which stay what they are."""
    exercise = find(name)
    if exercise.hidden:
        plain, changed = (
            exercise.right(replace(exercise.hidden, changed=who)) for who in (None, exercise.hidden.changed)
        )
        pairs = zip(*(leaves([*trial.returned, *trial.arguments]).values() for trial in (plain, changed)), strict=True)
        assert any(isinstance(a, torch.Tensor | float) and not close(a, b) for a, b in pairs)


@EACH
def test_the_last_hint_is_not_the_code(name):
    exercise = find(name)
    lines = [line.strip() for line in exercise.solution.splitlines() if line.strip() not in exercise.source]
    told = [line for line in lines if len(line) > 20 and line in exercise.hints[-1]]
    assert len(told) < max(2, len(lines) / 2)


# The references of collectives take what the formulas say that their algorithms take.

CLOSED_FORMS = {
    "left_reduce_scatter": costs.ring_reduce_scatter,
    "mended_all_reduce": costs.ring_all_reduce,
    "tree_reduce": costs.tree_reduce,
}


@pytest.mark.parametrize("name", CLOSED_FORMS)
def test_a_solution_takes_the_time_of_the_closed_form(name):
    case = next(case for case in find(name).cases if case.measured and case.ranks == 8)
    right, nbytes = find(name).right(case), case.arguments(0)[0].nbytes
    assert right.run.on(CLUSTER).seconds == pytest.approx(CLOSED_FORMS[name](nbytes, 8, CLUSTER.intra_node), rel=1e-6)


def test_an_all_to_all_by_pairs_is_granted_its_time():
    """(p-1) exchanges of counts and (p-1) of rows; posted all at once they take a third."""
    case = find("all_to_all_uneven").cases[-3]
    (seconds,) = (target for target in find("all_to_all_uneven").targets if target.name == "time")
    pairs = [
        costs.pairwise_all_to_all(nbytes, 4, CLUSTER.intra_node) for nbytes in (4 * 8, case.arguments(0)[0].nbytes)
    ]
    granted = find("all_to_all_uneven").right(case).run.on(CLUSTER).seconds * seconds.room
    assert sum(pairs) < granted < 1.1 * sum(pairs)


# Answers that are numbers are those of the virtual clock, and of measurements.


ONE_EXPERT = [case for case in find("tokens_needed").cases if case.arguments(0)[2] == 1]


@pytest.mark.parametrize("case", ONE_EXPERT, ids=str)
def test_with_the_rows_that_are_needed_a_product_waits_for_arithmetic_and_with_one_less_for_memory(case):
    k, n, _, _, peak, bandwidth, _ = case.arguments(0)
    device = replace(DEVICES["A100 80GB"], peak={"bfloat16": peak}, memory_bandwidth=bandwidth, launch_overhead=0.0)
    rows = find("tokens_needed").reference(*case.arguments(0))

    def waits_for_arithmetic(rows):
        def product():
            torch.empty(rows, k, dtype=torch.bfloat16) @ torch.empty(k, n, dtype=torch.bfloat16)

        took = launch(product, 1, cluster=Cluster(device, 1), backend="simulated", fake=True).seconds
        return took == pytest.approx(2 * rows * k * n / peak, rel=1e-9)

    less = rows - 1 if rows else 10**6  # 0: no number of rows is enough
    assert not rows or waits_for_arithmetic(rows)
    assert not less or not waits_for_arithmetic(less)


@pytest.mark.parametrize(
    ("place", "change", "told"),
    [
        (1, lambda own, maps, hidden: maps + 2 * own, "A mask has 1 byte"),
        (1, lambda own, maps, hidden: -maps, "the mask of the maps"),
        (1, lambda own, maps, hidden: -4 * own, "one of the two normalizations"),
        (1, lambda own, maps, hidden: -4 * hidden, "the bytes of GELU"),
        (1, lambda own, maps, hidden: 16 * hidden, "GELU is dealt out"),
        (2, lambda seconds: seconds / 4, "Of n bytes a rank keeps a part"),
        (2, lambda seconds: -3 / 8 * seconds, "An all-reduce has two halves"),
        (2, lambda seconds: 4 * seconds, "A step of the ring sends n/p bytes"),
    ],
)
def test_a_sum_of_a_layer_is_told_what_it_lacks(place, change, told):
    """On five GPUs, in the first case."""
    exercise, right = find("layer_seconds"), solved("layer_seconds")

    def layer_seconds(batch, sequence, width, heads, gpus, shares_tokens, compute, memory, wire):
        sums = list(right(batch, sequence, width, heads, gpus, shares_tokens, compute, memory, wire))
        numbers = batch * sequence * width
        if place == 1:
            sums[1] += change(numbers, batch * heads / gpus * sequence**2, 4 * numbers / gpus) / memory
        else:
            sums[2] += change(sums[2])
        return tuple(sums)

    assert told in str(judge(layer_seconds, exercise))


def test_a_predicted_layer_is_within_15_percent_of_what_was_measured():
    exercise = find("layer_seconds")
    published = [case for case in exercise.cases if case.facts]
    assert len(published) == 2
    for case in published:
        assert sum(exercise.reference(*case.arguments(0))) == pytest.approx(case.facts, rel=0.15)


def test_what_is_kept_is_what_a_layer_keeps_on_the_ledger():
    """A layer of 03d without its parameters: fused attention, no dropout, on one rank."""
    batch, tokens, width, heads = 2, 32, 64, 4

    def forward(layers):
        x = torch.empty(batch * tokens, width, dtype=torch.bfloat16)
        for _ in range(layers):
            weights = torch.nn.Linear(width, 12 * width, bias=False, dtype=torch.bfloat16).weight.view(12, width, width)
            qkv, out, up, down = weights[:3], weights[3], weights[4:8], weights[8:]
            heads_of = F.linear(F.layer_norm(x, (width,), weights[0, 0]), qkv.flatten(0, 1))
            q, k, v = heads_of.view(batch, tokens, heads, -1).transpose(1, 2).chunk(3, dim=-1)
            mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(-1, width)
            x = x + mixed @ out
            hidden = F.linear(F.layer_norm(x, (width,), weights[0, 1]), up.flatten(0, 1))
            x = x + F.gelu(hidden) @ down.flatten(0, 1)
        mark("end")
        return x

    kept = [launch(forward, 1, layers, fake=True, backend="simulated").memory[0].at("end") for layers in (1, 2)]
    _, peak = find("what_to_keep").reference(1, batch, tokens, width, 1, 0, 1e12)
    assert kept[1]["activations"] - kept[0]["activations"] == pytest.approx(peak, rel=0.02)


@pytest.mark.parametrize("cluster", ["16 x 8 A100", "2 x 8 A100, slower cards"])
def test_the_algorithm_that_is_chosen_is_nccls(cluster):
    """Of tensors without bytes; and of large ones, where no limit of a channel counts."""
    case = next(case for case in find("choose_algorithm").cases if case.facts == (cluster, "100 GB"))
    nbytes, *there = case.arguments(0)
    per_node, nodes, _, cards, _ = there
    two = {"tree_channel_bandwidth": 2 * cards / 8} if nodes == 2 else {}
    model = nccl.Communicator(per_node * nodes, nodes, 8, cards / 8, cpu="AMD", **two)
    for size in (0, nbytes):
        algorithm, protocol, seconds = find("choose_algorithm").reference(size, *there)
        chosen = model.choice(size)
        assert (algorithm, protocol) == (chosen.algorithm, chosen.protocol)
        assert seconds == pytest.approx(chosen.seconds, rel=0.01)


# The bugs are those that it claims.


def test_given_program_is_right_where_sends_return_early(monkeypatch):
    """Its bugs show in no value: with sends that are buffered, the sums of the stub are right."""
    exercise = find("mended_all_reduce")
    stub = exercise.variant(*[mistake for mistake in exercise.mistakes if mistake.given])
    assert "a send waits for its receive" in str(judge(stub).wrong)
    monkeypatch.setattr(dist, "send", lambda tensor, dst: dist.isend(tensor.clone(), dst))
    verdict = judge(stub)
    assert [line.state for line in verdict.lines if line.name in ("runs", "values")] == ["ok", "ok"]
    assert verdict.state == "wrong"


def test_a_deadlock_of_other_calls_is_told_no_mistakes_words():
    def mended_all_reduce(tensor):
        dist.recv(tensor, (dist.get_rank() + 1) % dist.get_world_size())

    wrong = str(judge(mended_all_reduce).wrong)
    assert "it hangs" in wrong and "wait in recv" in wrong and "All ranks send first" not in wrong


# The notebooks.


def test_every_chapter_has_its_notebooks_and_they_have_no_other():
    for folder in ("exercises", "solutions"):
        assert sorted(path.stem for path in ROOT.glob(f"{folder}/*.ipynb")) == CHAPTERS


@CHAPTER
def test_notebooks_are_the_same_but_for_the_blanks(chapter):
    blank, filled = notebook("exercises", chapter), notebook("solutions", chapter)
    blank = [cell for cell in blank if not cell.id.endswith("-hint")]
    assert [cell.id for cell in blank] == [cell.id for cell in filled]
    for stub, answer in zip(blank, filled, strict=True):
        assert (stub.cell_type, stub.metadata) == (answer.cell_type, answer.metadata)
        if stub.metadata.get("tags") and not stub.id.endswith("-check"):
            assert heading(stub.source) == heading(answer.source)
            assert stub.source != answer.source
        else:
            assert stub.source == answer.source


def heading(source):
    """What a function is called, takes and says that it does."""
    (function,) = ast.parse(source).body
    return function.name, ast.dump(function.args), ast.get_docstring(function)


@CHAPTER
def test_stub_cells_are_those_of_the_package(chapter):
    cells = notebook("exercises", chapter)
    places = tagged(cells)
    assert list(places) == [exercise.name for exercise in of_chapter(chapter)]
    for name, place in places.items():
        assert cells[place].source == find(name).source
        assert cells[place + 1].source.splitlines()[-1] == f"check({name})"


@CHAPTER
def test_tasks_in_the_notebook_are_those_of_the_package(chapter):
    cells = notebook("exercises", chapter)
    for name, place in tagged(cells).items():
        text, exercise = cells[place - 1].source, find(name)
        assert exercise.title in text
        assert f"{exercise.minutes} minutes, difficulty {exercise.difficulty} of 5" in text
        assert " ".join(exercise.task.replace("``", "`").split()) in " ".join(text.split())
        assert all(f"| {what} | {target} |" in text for what, target in exercise.table)


def test_a_note_is_for_those_who_post_messages_one_by_one():
    """With nccl it can hang."""

    def mended_step(numbers, loss):
        dist.isend(numbers, 1)
        dist.recv(numbers, 1)

    exercise = find("mended_step")
    assert "batch_isend_irecv" in exercise.note(mended_step)
    assert exercise.note(exercise.reference) == ""
