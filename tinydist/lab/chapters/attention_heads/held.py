"""What an answer holds besides what it was given, and whether that is a copy of keys and values."""

from ...errors import Wrong
from ...memory import draw_memory

ROOM = 8  # times the scores: a few tensors of their size may live at once


def holds_no_copy(trial, given, scores, keys):
    """Bytes: ``given`` to it, of all the scores, and of the keys that they need."""
    held, enough = trial.run.memory[0].peak - given, ROOM * scores
    if held > enough:
        copies = f", {held / keys:.1f} times the keys" if held >= keys else ""
        raise Wrong(
            f"it holds {held:,} bytes besides what it is given{copies}, where {enough:,} are enough. The scores have "
            f"{scores:,} bytes, the keys that they need {keys:,}, and their values as many, so there is room for no "
            "copy of them. repeat_interleave, indexing by a tensor, cat, where, .contiguous(), .double(), .float() and "
            "arithmetic on K or V make one, and a product that has to broadcast them does, too: let a view of q meet K "
            "as it lies",
            draw_memory(trial, 0),
        )
