"""Exact counts of the bytes and messages that each rank sends in an algorithm, also with uneven parts.

Its steps, and so its seconds, are those of hardware/costs.py.
"""

from typing import NamedTuple

from ..hardware import costs
from ..rules import listed, validate, whole


class Cost(NamedTuple):
    sent: list  # bytes, by rank
    messages: list  # sent, by rank
    steps: list  # (how many messages follow one another, bytes of the largest)

    def seconds(self, link) -> float:
        """alpha + n/beta for each step; reduction arithmetic is free here."""
        return costs.total_time(self.steps, link)

    def then(self, other) -> "Cost":
        """One algorithm after another."""
        sent, messages = (
            [a + b for a, b in zip(mine, others, strict=True)] for mine, others in zip(self[:2], other[:2])
        )
        return Cost(sent, messages, self.steps + other.steps)


@validate(num_elements=whole, parts=listed)
def part_sizes(num_elements, parts):
    """Sizes of the parts of ``torch.tensor_split`` for ``num_elements``: the first ones get one more."""
    small, more = divmod(num_elements, parts)
    return [small + 1] * more + [small] * (parts - more)
