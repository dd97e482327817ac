"""Do sends and receives pair up? The verifier's rule for messages.

What a rank needs of another is sent once and received once, in the order in which it is sent, after it is made and
before it is needed; and nothing else is sent or received.
"""

from collections import Counter, defaultdict
from typing import NamedTuple

from .actions import MESSAGES, Action, message_of, needs


class Expected(NamedTuple):
    """A message, as the send and the receive of it are expected to be."""

    receive: Action
    ends: tuple[int, int]  # (source, destination)
    neighbor: Action  # the pass that makes it, or needs it


class Pairing:
    """``facts``: the verifier's Check, that knows where each action is."""

    def __init__(self, facts):
        self.facts, self.schedule = facts, facts.schedule
        self.expected = dict(self._expected())

    def _expected(self):
        """Send or receive -> Expected."""
        home = self.facts.home
        for part in [part for part in self.facts.steps if part.kind not in MESSAGES]:
            result = needs(part, self.schedule.stages, self.schedule.ranks)
            if result and home[result.stage] != home[part.stage]:
                send, receive = message_of(result)
                ends = home[result.stage], home[part.stage]
                yield send, Expected(receive, ends, self.facts.maker(result))
                yield receive, Expected(receive, ends, part)

    def check(self):
        sent, received, done = defaultdict(list), defaultdict(list), Counter()  # ends -> receives, in order
        for rank, step, part in self.schedule.all_parts():
            if part.kind not in MESSAGES:
                continue
            done[part] += 1
            if part not in self.expected or done[part] > 1:
                why = "is there already" if part in self.expected else "brings nothing that another rank needs"
                self.facts.fail("messages", f"{part} {why}", rank, step)
            self._in_its_place(part, rank, step)
            receive, ends, _ = self.expected[part]
            (received if part == receive else sent)[ends].append(receive)
        for message, expected in self.expected.items():
            if not done[message]:
                text = f"{message} is missing: {expected.neighbor} is for another rank, or from one"
                self.facts.fail("messages", text, self.facts.home[message.stage])
        for ends, order in sent.items():
            self._in_order(ends[0], order, received[ends])

    def _in_its_place(self, message, rank, step):
        receive, _, neighbor = self.expected[message]
        there, at = self.facts.steps[neighbor]
        if there != rank:
            text = f"{message} is of stage {message.stage}, which is on rank {there}"
            self.facts.fail("messages", text, rank, step)
        if message == receive and step > at:
            self.facts.fail("order", f"{message} comes after {neighbor}, at step {at}, which needs it", rank, step)
        if message != receive and step < at:
            text = f"{message} comes before {neighbor}, at step {at}, which makes what it sends"
            self.facts.fail("order", text, rank, step)

    def _in_order(self, source, sent, received):
        for first, other in zip(sent, received):
            if first != other:
                text = f"{other} is received where rank {source} sends what is for {first}: out of order"
                self.facts.fail("messages", text, *self.facts.steps[other])
