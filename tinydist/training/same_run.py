"""What defines a training run stands in its checkpoints: one of another run is refused, unless the change is allowed.

A run's only state is its step, and the data is a function of seed, batch and step (data.py). So a change of one of
these goes on without an error, with sequences that were seen already, or with others that never come.
"""

from ..checkpoint.rules import CheckpointError

CHANGES = {  # what may be allowed: what it means
    "batch": "of the data's order, {seen:,} sequences are done, and step {step:,} now begins at number {place:,}",
    "seed": "the rest of the data comes in another order: some sequences come again, and others not in this epoch",
    "data": "the rest of the run reads other tokens",
    "held_out": "the windows are cut anew: some that are held out now have been trained on, or the reverse",
    "heads": "the weights have the same shapes, and what they compute is something else",
}


def check_same_run(folder, step, saved, run, allowed=()):
    """Raises ``CheckpointError`` for the first difference of ``saved`` and ``run``, name -> value, if not allowed."""
    for name in [name for name in run if saved.get(name, run[name]) != run[name] and name not in allowed]:
        there, here = saved[name], run[name]
        words = f"train: the checkpoint in {folder} is of a run with {name} {there}, and this one has {name} {here}"
        if name in CHANGES:
            place = {"step": step, "seen": step * saved.get("batch", 0), "place": step * run.get("batch", 0)}
            option = name.replace("_", "-")
            words += f": {CHANGES[name].format_map(place)}. --allow-change {option} goes on with it"
        raise CheckpointError(words)
