"""What stands in the slots of a cache, where it is not what should: which slot, whose numbers, turned to where."""

import torch

from ....attention import rotate
from ...errors import Wrong
from .attend import close


def same_slots(plan, keys, values):
    """``keys`` and ``values``: as they are after all steps."""
    before, wanted = plan.past(), plan.after(plan.steps)
    for row, length in enumerate(plan.lengths):
        found = [changed(keys[row], before.keys[row]), changed(values[row], before.values[row])]
        new = list(range(length, length + plan.steps))
        for name, slots in zip(("keys", "values"), found):
            if slots != new:
                raise Wrong(f"row {row} has {length} tokens, {misplaced(plan, name, slots, length)}")
        for name, mine, right in (("keys", keys, wanted.keys), ("values", values, wanted.values)):
            for number, slot in enumerate(new):
                if not close(mine[row, :, slot], right[row, :, slot]):
                    raise Wrong(f"row {row}, slot {slot}: {content(plan, name, mine, row, slot, number)}")


def changed(mine, before):
    return (mine != before).any(-1).any(0).nonzero().flatten().tolist()


def misplaced(plan, name, slots, length):
    steps, longest = plan.steps, max(plan.lengths)
    wrote = f"and after {steps} steps its {name} have changed in {in_words(slots)}"
    if not slots:
        return f"and after {steps} steps no slot of its {name} has changed: write them into the cache"
    if length and slots[0] == length - 1:
        return f"{wrote}. Slots count from 0, so slot {length - 1} held the last token, and is overwritten"
    if slots == list(range(length + 1, length + 1 + steps)):
        return f"{wrote}. Slots count from 0, so slot {length} is the next, and is left out"
    if slots == list(range(longest, longest + steps)):
        return (
            f"{wrote}: behind the longest row's last token, not behind its own. Slots from {length} on stay in "
            "between, with nothing in them"
        )
    if not slots[0] < length and set(range(length, length + steps)) < set(slots):
        return f"{wrote}: more than the {steps} new ones. Each row writes one slot a step"
    return f"{wrote}, where {in_words(list(range(length, length + steps)))} are right: behind its own last token"


def in_words(slots):
    shown = ", ".join(map(str, slots[:6])) + (", ..." if len(slots) > 6 else "")
    return f"slot{'s' * (len(slots) != 1)} {shown}"


def content(plan, name, mine, row, slot, number):
    _, k, v = plan.step(number)
    here, k, v = mine[row, :, slot], k[row : row + 1], v[row : row + 1]

    def turned(x, position):
        return rotate(x, torch.tensor([position]))[0, :, 0]

    if name == "values":
        if close(here, turned(v, slot)):
            return "the value is turned. Only queries and keys are: what they say of positions is in the weights"
        if close(here, k[0, :, 0]) or close(here, turned(k, slot)):
            return "the key stands among the values"
        return f"there is not the value of this row's token {slot}, counted from 0"
    if close(here, k[0, :, 0]):
        return "the key is not turned to its position, or to position 0"
    for position in sorted(range(plan.slots + 1), key=lambda each: abs(each - slot)):
        if close(here, turned(k, position)):
            return (
                f"the key is turned to position {position}. Positions count from 0: with {slot} "
                f"token{'s' * (slot != 1)} before it, this one stands at {slot}"
            )
    if close(here, v[0, :, 0]):
        return "the value stands among the keys"
    return f"there is not the key of this row's token {slot}, counted from 0, turned"
