"""What an algorithm makes each rank send: bytes and messages, counted exactly, where parts are uneven too.

Its steps, and so its seconds, are those of hardware/costs.py.
"""

from typing import NamedTuple

from ..hardware import costs
from ..rules import listed, takes, whole


class Cost(NamedTuple):
    sent: list  # bytes, by rank
    messages: list  # sent, by rank
    steps: list  # (how many messages follow one another, bytes of the largest)

    def seconds(self, link) -> float:
        """alpha + n/beta for each step: adding numbers up costs nothing here."""
        return costs.seconds(self.steps, link)

    def then(self, other) -> "Cost":
        """One algorithm after another."""
        sent, messages = (
            [a + b for a, b in zip(mine, others, strict=True)] for mine, others in zip(self[:2], other[:2])
        )
        return Cost(sent, messages, self.steps + other.steps)


@takes(count=whole, parts=listed)
def part_sizes(count, parts):
    """How ``torch.tensor_split`` deals ``count`` things out: the first ones get one more."""
    small, more = divmod(count, parts)
    return [small + 1] * more + [small] * (parts - more)
