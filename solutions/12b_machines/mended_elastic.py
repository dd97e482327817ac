"""A script that torchrun starts again on another number of processes, and five ways in which it loses its place."""

import torch
import torch.distributed as dist

from tinydist.lab.author import Bytes, Case, Varied, Wrong, exercise, mistake

from .machines import ROWS, Folder, Lost, batches

STEPS = 9
SHARE, STARTED_FOR_FOUR = "mine = slice(rank, None, ranks)", "mine = slice(2 * rank, 2 * rank + 2)"
BY_PARTS = "mine = slice(*(len(rows) * place // ranks for place in (rank, rank + 1)))"
OWN_NOISE = (
    "The noise is drawn for a rank's own rows alone: then a row gets other noise where ranks are more or fewer. Draw "
    "it "
    "for the whole batch, and take your rows of it"
)
WRITTEN = '            files.write("new", state)\n            files.rename("new", "checkpoint")\n'


def case(*starts, every=2, dtype=torch.float32):
    """``starts``: (ranks, the step that is not begun, the save that is cut, counted from 1)."""
    content, ranks = {}, max(each for each, *_ in starts)
    told = [f"{each} until step {end}" + f", save {cut} cut" * bool(cut) for each, end, cut in starts[:-1]]
    about = "; ".join([f"starts on {told[0]}" if told else "never stopped", *told[1:], f"{starts[-1][0]} to the end"])
    return Case(ranks, lambda rank: (content, starts, every, dtype), about + ", float64" * (dtype == torch.float64))


def test_cases():
    yield case((2, None, None))
    yield case((3, None, None), every=4)
    yield case((4, 5, None), (2, None, None))
    yield case((2, 5, 2), (3, None, None))
    yield case((3, 4, None), (1, 6, 1), (3, None, None), every=3)
    yield case((2, 1, None), (4, 8, None), (3, None, None), every=1, dtype=torch.float64)
    yield case((1, 5, 2), (1, None, None))
    yield case((5, 4, None), (2, None, None))


def program(answer, content, starts, every, dtype):
    """Of each start the first ranks are there."""
    rank, steps, writes, weight = dist.get_rank(), [], 0, torch.zeros(3, dtype=dtype)
    content.clear()
    for ranks, end, cut in starts:
        group = dist.new_group(list(range(ranks)))
        files, begun = Folder(content, cut), []
        dist.barrier()
        if rank < ranks:
            try:
                weight = answer(group, files, batches(end, begun, dtype), STEPS, every)
            except Lost:
                weight = torch.zeros(3, dtype=dtype)
            if not isinstance(weight, torch.Tensor) or weight.shape != (3,):
                raise Wrong(f"on rank {rank} it returned {weight!r}, where the weight is right, of 3 numbers")
        if files.writes:
            content.clear()
            content.update(files.content)
        dist.barrier()
        steps.append(f"{begun[0]} to {begun[-1]}" if begun else "none")
        writes += files.writes
    share = {"its share": share_of(answer, group, dtype)} if len(starts) == 1 else {}
    return {
        "steps that it takes": "; then ".join(steps),
        "the weight": weight,
        "its part": "saves" if writes else "does not save",
    } | share


def share_of(answer, group, dtype):
    """Rows that the weight is NaN after, if they are so on one rank alone: more than needed?"""
    ranks, used = dist.get_world_size(), []
    for source in range(ranks):
        used.append(0)
        for row in range(ROWS):

            def batch_of(step):
                rows, targets = batches(None, [], dtype)(step)
                rows[row] += float("nan") if dist.get_rank() == source else 0.0
                return rows, targets

            used[-1] += bool(answer(group, Folder({}, None), batch_of, 1, 2).isnan().any())
    return "no more rows than needed" if max(used) <= -(-ROWS // ranks) else f"{max(used)} of {ROWS} rows on a rank"


@exercise(
    title="Mend a script that loses its place",
    minutes=25,
    difficulty=3,
    test_cases=test_cases,
    program=program,
    check_communication=False,  # ranks talk in groups of each start: what is sent there is not changed
    targets=[
        Varied(
            "the steps of each start, and in the end the weight of a process that nothing stops; 1 to 5 ranks",
            scratch=True,
            variants=[
                (
                    "The gradient is divided by the ranks as well: the batch is divided by all of its rows already",
                    "    dist.all_reduce(gradient, group=group)\n",
                    "    dist.all_reduce(gradient, group=group)\n        gradient = gradient / ranks\n",
                ),
                (
                    "The gradients of the ranks are not added up: each has its own rows",
                    "dist.all_reduce(gradient, group=group)",
                    "pass",
                ),
                (
                    "The rate is that of the next step: before the first step it is 0.1",
                    "(1 - step / steps)",
                    "(1 - (step + 1) / steps)",
                ),
                (
                    "The rate falls to 0 over what is left of the run: it follows from the steps of the whole run",
                    "(1 - step / steps)",
                    "(1 - (step - first) / (steps - first))",
                ),
                ("The rate stays what it is: over the run it falls to 0", "0.1 * (1 - step / steps)", "0.1"),
                ("All ranks work on the first rows: each has its own", SHARE, "mine = slice(0, None, ranks)"),
                (
                    OWN_NOISE,
                    "x = (rows + noise)[mine]",
                    "x = rows[mine] + noise[: len(rows[mine])]",
                ),
                (OWN_NOISE, SHARE, BY_PARTS, "x = (rows + noise)[mine]", "x = rows[mine] + noise[: len(rows[mine])]"),
                (
                    "The noise depends on which rank draws: it has to follow from the step, and each row has its own, "
                    "whoever works on it",
                    SHARE,
                    BY_PARTS,
                    "manual_seed(step)",
                    "manual_seed(rank)",
                ),
                (
                    "The noise is drawn from the seed 0 in each step: it follows from the step",
                    "manual_seed(step)",
                    "manual_seed(0)",
                ),
                (
                    "The noise is drawn from the step of this start: it follows from the step of the run",
                    "manual_seed(step)",
                    "manual_seed(step - first)",
                ),
                ("The noise is missing", "0.1 * torch.randn", "0.0 * torch.randn"),
                (
                    "There is noise on the targets' side, too, or on some rows alone: each row gets it once",
                    "(rows + noise)[mine]",
                    "(rows + 2 * noise)[mine]",
                ),
                (
                    "The weight is lost at each start: it is part of the state",
                    'state["weight"], state["momentum"]',
                    '0.0, state["momentum"]',
                ),
                (
                    "The step that is in the checkpoint is left out: it is saved as the next one already",
                    '"step": step + 1',
                    '"step": step + 2',
                ),
                ("Every rank saves: one is enough, and several write into one another", " and rank == 0:", ":"),
                (
                    "A save comes after every `every` steps: this one comes one step late, or early",
                    "(step + 1) % every",
                    "step % every",
                ),
            ],
        ),
        Bytes("an all-reduce of the gradient in each step; a start may send a state around", together=True, room=20.0),
    ],
    mistakes=[
        mistake(
            "This deals a batch out to four processes. With fewer, rows are left out, and with more some ranks have "
            "none: the share has to follow from how many there are",
            SHARE,
            STARTED_FOR_FOUR,
            given=True,
        ),
        mistake(
            "A checkpoint is written after a step, and the next one is where to go on: this start takes a step that is "
            "in the checkpoint already",
            '"step": step + 1',
            '"step": step',
            given=True,
        ),
        mistake(
            "The noise depends on which rank draws, and begins anew: it has to follow from the step, and each row has "
            "its own, whoever works on it",
            "manual_seed(step)",
            "manual_seed(rank)",
            given=True,
        ),
        mistake(
            "The learning rate begins anew at each start: it follows from the steps of the whole run",
            "(1 - step / steps)",
            "(1 - (step - first) / steps)",
            given=True,
        ),
        mistake(
            "A save that was cut has destroyed the checkpoint before it. Write to another name, and rename what is "
            "whole: then one of the two is always there",
            WRITTEN,
            '            files.write("checkpoint", state)\n',
            given=True,
        ),
        mistake(
            "The momentum is lost at each start: it is part of the state",
            'state["weight"], state["momentum"]',
            'state["weight"], 0.0',
        ),
        mistake(
            "Gradients, or the rate, grow with the number of ranks. The batch stays what it is: divide by all of its "
            "rows, and leave the rate as it is",
            "/ len(rows)",
            "/ len(rows[mine])",
        ),
        mistake(
            "The seed of the noise has the rank in it: then a row gets other noise where ranks are more or fewer. Draw "
            "it for the whole batch, from the step alone, and take your rows of it",
            "manual_seed(step)",
            "manual_seed(1000 * step + rank)",
        ),
    ],
    hints=[
        "What must be the same, whether a step is taken by 4 processes or by 1, before a restart or after it? Rows, "
        "their noise, the rate, and the state that it begins with.",
        "A number that follows from rank, ranks or first is suspect. Of each, ask whether one process that nothing "
        "stops would have the same.",
        "While a file is written it is not whole. Renaming is done at once, or not at all.",
    ],
    why="Elastic training starts the same script on whatever machines are left. A script that counts from its own "
    "start trains on without an error, and the curve of its loss has a small step that nobody can explain.",
)
def mended_elastic(group, files, batch_of, steps, every):
    """Train for ``steps`` steps in all, and return the weight that one process has if nothing stops it.

    torchrun starts this anew whenever a machine is lost or comes: then ``group`` has another number of processes. It
    is a colleague's script. It trains, but after a restart it is not where it was. Mend it: there are five bugs.

    ``batch_of(step)`` gives the rows and targets of the whole batch, the same on all ranks, who deal them out:
    nobody takes more rows than needed. Each row gets noise, drawn for the whole batch from a generator that begins with
    the number of the step. The rate falls from 0.1 to 0 over the run. After every ``every`` steps rank 0 saves.

    ``files`` is a folder that all machines see: ``"a" in files``, ``files.read("a")``, ``files.write("a", state)``,
    ``files.rename("a", "b")``, which replaces b. A machine may be lost while it writes.
    """
    rank, ranks = dist.get_rank(group), dist.get_world_size(group)
    state = {"step": 0, "weight": 0.0, "momentum": 0.0}
    if "checkpoint" in files:
        state = files.read("checkpoint")
    first, weight, momentum = state["step"], state["weight"], state["momentum"]
    for step in range(first, steps):
        rows, targets = batch_of(step)
        noise = 0.1 * torch.randn(rows.shape, generator=torch.Generator().manual_seed(step), dtype=rows.dtype)
        mine = slice(rank, None, ranks)
        x = (rows + noise)[mine]
        gradient = 2 * x.T @ ((x * weight).sum(1) - targets[mine]) / len(rows)
        dist.all_reduce(gradient, group=group)
        momentum = 0.9 * momentum + gradient
        weight = weight - 0.1 * (1 - step / steps) * momentum
        if (step + 1) % every == 0 and rank == 0:
            state = {"step": step + 1, "weight": weight, "momentum": momentum}
            files.write("new", state)
            files.rename("new", "checkpoint")
    return weight
