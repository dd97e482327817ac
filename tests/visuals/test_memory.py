"""The stack is the ledger's; its peak is marked, explained, and told beside what is held at rest."""

import pytest
import torch
from torch.utils.checkpoint import checkpoint
from visuals.drawn import assert_can_be_read, texts, written
from visuals.named_runs import PROGRAMS as NAMED
from visuals.named_runs import named_run
from visuals.some_runs import run_of

import tinydist
from tinydist import visuals
from tinydist.visuals.canvas import apart
from tinydist.visuals.formatting import BYTES, bytes_text, digits, unit_for
from tinydist.visuals.memory_states import MemoryStates, total
from tinydist.visuals.palette import MEMORY, RED
from tinydist.visuals.scene import Scene


def area(figure):
    return next(axes for axes in figure.axes if "holds" in axes.get_ylabel())


def states(run, rank=0, since=None):
    return MemoryStates(Scene("test", run.trace, [rank], since), rank)


@pytest.mark.parametrize("name", ["star", "ring", "overlap", "training"])
def test_the_top_of_the_stack_is_the_peak(name):
    run = run_of(name)
    axes = area(visuals.memory(run))
    top = max(path.vertices[:, 1].max() for stack in axes.collections for path in stack.get_paths())
    assert top == axes.lines[0].get_ydata()[0] == run.memory[0].peak


@pytest.mark.parametrize("name", NAMED)
def test_it_can_be_read(name):
    assert_can_be_read(visuals.memory(named_run(name)))
    assert_can_be_read(visuals.timeline_over_memory(named_run(name), lines={"a limit": 3e6}))


def test_the_table_explains_the_peak(said):
    run = named_run("fsdp")
    figure, held = visuals.memory(run), states(run)
    size, unit = unit_for(total(held.peak), BYTES)
    row = {round(box.y0): [] for text, box in texts(figure) if text.get_text() == f"peak ({unit})"}
    (height,) = row
    numbers = [text.get_text() for text, box in texts(figure) if round(box.y0) == height and box.x0 > 80]
    shown = [purpose for purpose in MEMORY if any(state[purpose] for _, _, state in held.states)]
    expected = [digits(held.peak[purpose] / size) if held.peak[purpose] else "–" for purpose in shown]
    assert numbers == [*expected, digits(total(held.peak) / size)]
    assert {*shown, "in all"} <= set(written(figure))
    line = said()
    assert all(f"{part} {bytes_text(nbytes)}" in line for part, nbytes in held.peak.items() if nbytes)


def test_at_rest_is_what_training_keeps():
    held = states(named_run("fsdp"), since=("F1", 1))
    shard = 2 * 1000 * 1000  # bytes: a quarter of four layers, two bytes each
    kept = {"parameters": shard, "gradients": shard, "optimizer states": 2 * shard}
    assert {purpose: held.rest[purpose] for purpose in kept} == pytest.approx(kept, rel=1e-3)
    assert total(held.rest) < total(held.peak)


def test_of_another_program_at_rest_is_the_least():
    held = states(named_run("torch pipeline"))
    last = max(event.place for event in held.scene.trace.of(0, "compute"))  # then all is given back
    assert total(held.rest) == min(total(state) for _, place, state in held.states if place <= last) > 0


def test_the_peak_is_named_by_what_is_computed():
    run = named_run("fsdp")
    figure = visuals.timeline_over_memory(run, ranks=[0], since=("F1", 1))
    assert figure.alt.endswith("at the peak, in B2.") or ", in B" in figure.alt
    assert f"peak {bytes_text(total(states(run, since=('F1', 1)).peak))}" in written(figure)


def test_a_timeline_has_the_axis_of_the_memory_below():
    figure = visuals.timeline_over_memory(named_run("ddp"))
    rows, bytes_ = figure.axes[:2]
    assert rows.get_xlim() == bytes_.get_xlim()
    assert rows.get_position().bounds[::2] == bytes_.get_position().bounds[::2]


def test_a_peak_before_training_is_drawn():
    def program():
        large = torch.empty(10_000_000)
        del large
        torch.nn.Linear(8, 8)(torch.ones(8, 8))

    run = tinydist.launch(program, 1, fake=True)
    top = area(visuals.memory(run)).lines[0].get_ydata()[0]
    assert top == run.memory[0].peak == 40_000_000


def test_the_peak_until_a_block_is_not_that_of_the_next():
    def program():
        layers = [torch.nn.Linear(8, 8), torch.nn.Linear(8, 100_000)]
        torch.nn.Sequential(*layers)(torch.ones(8, 8))

    run = tinydist.launch(program, 1, fake=True)
    weights = 4 * (9 * 8 + 9 * 100_000)
    activations = 4 * 8 * (8 + 8)
    figure = visuals.memory(run, until="F1")
    assert area(figure).lines[0].get_ydata()[0] == weights + activations and figure.alt.endswith("in F1.")
    assert area(visuals.memory(run, until="F2")).lines[0].get_ydata()[0] == run.memory[0].peak > 6.4e6


def test_lines_are_as_high_as_they_say():
    figure = visuals.memory(run_of("star"), lines={"one tensor": 4e6, "two": 8e6})
    heights = {line.get_ydata()[0] for line in area(figure).lines}
    assert {4e6, 8e6} <= heights
    assert {"one tensor 4.00 MB", "two 8.00 MB"} <= set(written(figure))
    assert_can_be_read(figure)


def test_names_of_lines_stand_apart():
    assert apart([1.0, 1.05, 3.0], 0.15) == pytest.approx([1.0, 1.15, 3.0])


def test_a_rank_that_is_not_there():
    with pytest.raises(ValueError, match="the run has ranks 0 to 3, but rank 4 was requested"):
        visuals.memory(run_of("star"), rank=4)


def test_a_rank_that_held_nothing():
    with pytest.raises(ValueError, match="rank 0 held nothing, or was not run"):
        visuals.memory(tinydist.launch(lambda: None, 1))


def test_colors_are_purposes_and_nothing_else():
    axes = visuals.timeline_over_memory(named_run("fsdp"), ranks=[0]).axes[0]
    drawn = {tuple(color[:3]) for each in axes.collections for color in each.get_facecolors()}
    assert all(max(color) == min(color) for color in drawn)  # greys
    assert len({look["facecolor"] for look in [*MEMORY.values(), {"facecolor": RED}]}) == len(MEMORY) + 1


# Of several runs: in one scale, above the names of what was computed.


def tops(figure):
    """The highest point of each run."""
    areas = [axes for axes in figure.axes if axes.get_ylabel()]
    return [max(path.vertices[:, 1].max() for part in axes.collections for path in part.get_paths()) for axes in areas]


def test_each_rises_to_its_peak(said):
    runs = {"alone": (run_of("alone"), 0.0), "two ranks": (run_of("training"), 0.0)}
    figure = visuals.memories(runs)
    peaks = [run.memory[0].peak for run, _ in runs.values()]
    assert tops(figure) == peaks
    assert len({axes.get_ylim() for axes in figure.axes if axes.get_ylabel()}) == 1
    lines = said().splitlines()
    for name, peak, line in zip(runs, peaks, lines, strict=True):
        assert line.startswith(f"rank 0, {name}: ") and line.endswith(f"{bytes_text(peak)} at the peak")
    assert_can_be_read(figure)


def test_of_one_purpose_under_the_names_of_the_passes():
    runs = {name: (named_run(name), "B4") for name in ("ddp", "zero 2")}
    figure = visuals.memories(runs, purposes=["gradients"])
    expected = [
        max(state["gradients"] for seconds, state in run.memory[0].over_time() if seconds >= run.trace.seconds / 9)
        for run, _ in runs.values()
    ]
    assert tops(figure) == expected
    assert {"ddp", "zero 2", "gradients", "B4", "Adam"} <= set(written(figure))
    assert any(text.startswith("virtual time since B4") for text in written(figure))
    assert_can_be_read(figure)


def test_ranks_that_held_nothing():
    def idle():
        torch.ones(3)

    with pytest.raises(ValueError, match="in none of the runs did rank 0 hold anything"):
        visuals.memories({"idle": tinydist.launch(idle, 1)}, purposes=["gradients"])


def test_a_table_of_all_purposes_fits_beside_them():
    def program():
        for purpose in MEMORY:
            with tinydist.purpose(purpose):
                kept.append(torch.ones(1000))
            tinydist.mark(purpose)

    kept = []
    figure = visuals.memory(tinydist.launch(program, 1))
    texts = {text.get_text(): text for axes in figure.axes for text in axes.texts}
    assert set(MEMORY) < texts.keys()
    assert texts["in all"].get_window_extent().x1 <= figure.bbox.x1


class Mlp(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.up, self.down = torch.nn.Linear(512, 512), torch.nn.Linear(512, 512)

    def forward(self, x):
        return self.down(self.up(x).relu())


def test_what_is_computed_once_more_is_hatched_and_in_the_legend():
    def program(again):
        layers = torch.nn.Sequential(*[Mlp() for _ in range(2)])
        x = torch.ones(512, 512)
        for layer in layers:
            x = checkpoint(layer, x, use_reentrant=False) if again else layer(x)
        x.sum().backward()

    plain, again = (tinydist.launch(program, 1, each) for each in (False, True))
    words = "R: forward once more"
    assert words not in written(visuals.memories({"plain": plain}))
    figure = visuals.memories({"plain": plain, "again": again})
    assert_can_be_read(figure)
    assert words in written(figure)
    hatched = [bars for axes in figure.axes for bars in axes.collections if bars.get_hatch()]
    assert hatched
