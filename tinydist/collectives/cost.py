"""What an algorithm costs: the bytes that each rank sends, its messages, and the steps that nobody can shorten.

Counted exactly, for tensors that do not divide evenly too. hardware/costs.py has the same as formulas in n and p.
"""

from typing import NamedTuple

from ..hardware.costs import message_seconds


class Cost(NamedTuple):
    sent: list  # bytes, by rank
    messages: list  # sent, by rank
    steps: list  # bytes of the largest message of each step; steps follow one another

    def seconds(self, link) -> float:
        """alpha + n/beta for each step: adding numbers up costs nothing here."""
        return sum(message_seconds(nbytes, link) for nbytes in self.steps)

    def then(self, other) -> "Cost":
        """One algorithm after another."""
        sent, messages = (
            [a + b for a, b in zip(mine, others, strict=True)] for mine, others in zip(self[:2], other[:2])
        )
        return Cost(sent, messages, self.steps + other.steps)


def part_sizes(count, parts):
    """How ``torch.tensor_split`` deals ``count`` things out: the first ones get one more."""
    small, more = divmod(count, parts)
    return [small + 1] * more + [small] * (parts - more)
