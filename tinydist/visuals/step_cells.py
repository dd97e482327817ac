"""Cells of ``steps``: which ranks each contains; and its frames, the start and the state after each step.

A cell is a text, whose capital letters name ranks (A is rank 0), or a whole number, of which the digit with the value
10**r tells what is in of rank r: 300 is C3, 330 is BC3, 3333 of four ranks is Σ3. Where the order of addition is known
(film.py), a sum of all ranks has its letters too: BCDA3.
"""

from string import ascii_uppercase as LETTERS

from ..launching.launch import Run
from ..rules import each_of, finite, is_tensor, many, stated
from .palette import RANKS


class Spelled(str):
    """A cell whose letters stand in the order in which they were added."""


def in_letters(cell):
    """The text of a cell: 330 is BC3, and 340, in which different parts are mixed, is B4C3."""
    if isinstance(cell, str):
        return cell
    value = cell.item() if is_tensor(cell) else cell
    if not (finite(value) and value >= 0 and value % 1 == 0):
        raise ValueError(f"steps: a cell is a text or an integer >= 0, got {value}")
    parts = [(LETTERS[rank], digit) for rank, digit in enumerate(reversed(str(int(value)))) if digit != "0"]
    if len({digit for _, digit in parts}) == 1:
        return "".join(letter for letter, _ in parts) + parts[0][1]
    return "".join(letter + digit for letter, digit in parts)


def letters_in(cell):
    return [letter for letter in cell if letter in LETTERS]


def ranks_in(cell):
    return [LETTERS.index(letter) for letter in letters_in(cell)]


def texts_of(cell, ranks):
    """What is written, and what if there is less room: Σ if all ranks are in (or in which order), else who, or how
    many."""
    letters = "".join(letters_in(cell))
    complete = ranks > 1 and set(LETTERS[:ranks]).issubset(letters)
    few = "Σ" if complete else f"{len(letters)}/{ranks}" if len(letters) > 1 else letters or cell
    if isinstance(cell, Spelled):
        return cell, letters, folded(letters), few
    if complete:
        return "Σ" + cell.strip(LETTERS), few, few
    return cell, letters or cell, few


def folded(letters):
    """Two to a line: of BCD, BC and below it D."""
    return "\n".join(letters[begin : begin + 2] for begin in range(0, len(letters), 2))


rows = stated("a row of cells", lambda row: many(row) and len(row) > 0)
frame = each_of(each_of(rows))
frames_or_run = stated("a run, or a list of frames", lambda v: isinstance(v, Run) or frame(v))


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
                f"steps: each rank must return its rows, one at the start and one per step; rank {rank} did not"
            )
    return list(zip(*run.results))


def frame_numbers(frames):
    return stated(
        f"one or more frames of 0 to {frames - 1}", lambda only: len(only) > 0 and all(each < frames for each in only)
    )


def check(tables, titles, sent):
    if len(ranks := {len(table): True for table in tables}) > 1:
        raise ValueError(f"steps: every frame needs the same number of ranks, got {', '.join(map(str, ranks))}")
    if max(ranks) > len(RANKS):
        raise ValueError(f"steps: at most {len(RANKS)} ranks are supported, got {max(ranks)}")
    if len(parts := {len(row): True for table in tables for row in table}) > 1:
        got = ", ".join(map(str, parts))
        raise ValueError(f"steps: every frame needs the same number of parts per rank, got rows of {got} cells")
    if len(titles) != len(tables):
        raise ValueError(f"steps: {len(tables)} frames need one title each, got {len(titles)}")
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
