"""The frames of a film of cells: what each rank held at the start and after each step, and the messages between."""

from ..launching.launch import Run
from ..rules import each_of, many, stated
from .cells import in_letters
from .palette import RANKS

rows = stated("a row of cells", lambda row: many(row) and len(row) > 0)
frame = each_of(each_of(rows))
film = stated("a run, or a list of frames", lambda v: isinstance(v, Run) or frame(v))


def frames_of(run, titles=None):
    """(tables, titles, messages) of each frame, checked."""
    frames = run_frames(run) if isinstance(run, Run) else run
    tables = [[[in_letters(cell) for cell in row] for row in each] for each in frames]
    titles = titles or ["start"] + [f"step {step}" for step in range(len(tables) - 1)]
    sent = [[]] + steps_of(run) if isinstance(run, Run) else [[]] * len(tables)
    check(tables, titles, sent)
    return tables, titles, sent


def run_frames(run):
    for rank, each in enumerate(run.results):
        if not frame([each]):
            raise ValueError(
                f"steps: each rank must return its rows, one at the start and one a step; rank {rank} did not"
            )
    return list(zip(*run.results))


def frame_numbers(frames):
    return stated(
        f"one or more frames of 0 to {frames - 1}", lambda only: len(only) > 0 and all(each < frames for each in only)
    )


def check(tables, titles, sent):
    if len(ranks := {len(table): True for table in tables}) > 1:
        raise ValueError(f"steps: every frame needs as many ranks, got {', '.join(map(str, ranks))}")
    if max(ranks) > len(RANKS):
        raise ValueError(f"steps: it has colors for {len(RANKS)} ranks, got {max(ranks)}")
    if len(parts := {len(row): True for table in tables for row in table}) > 1:
        got = ", ".join(map(str, parts))
        raise ValueError(f"steps: every frame needs as many parts on each rank, got rows of {got} cells")
    if len(titles) != len(tables):
        raise ValueError(f"steps: {len(tables)} frames need as many titles, got {len(titles)}")
    if len(sent) != len(tables):
        steps = f"the run has {len(sent) - 1} steps of messages, so {len(sent)} frames"
        raise ValueError(f"steps: {steps}, but got {len(tables)}")


def steps_of(run):
    """(source, destination) of the messages of a run, those that started together in one list."""
    steps = {}
    for event in run.trace.events:
        if event.name == "message":
            steps.setdefault(round(event.start, 12), {})[event.transfer.ranks] = True
    return [list(steps[start]) for start in sorted(steps)]
