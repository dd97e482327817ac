"""Matching: collectives by call order within their group, messages by the order in which they are posted.

A call that is issued is registered here; the last rank to arrive finds the others' tensors. Messages are matched
when both sides are posted and not when they are waited for: a pipeline schedule that posts several receives and
waits for them in another order would otherwise get each other's tensors, silently.
"""

from typing import NamedTuple

from ..rules import ranks_in_words
from .scheduler import Waitable


class MismatchError(RuntimeError):
    """Ranks of a group issued different collectives, or with different arguments."""


class Signature(NamedTuple):
    """The signature of a call, which must match on all ranks of a collective."""

    name: str
    root: int | None = None  # global rank
    reduction: str | None = None
    dtypes: tuple = ()
    shapes: tuple = ()
    members: str | None = None  # of a group that is made

    def __str__(self):
        words = [
            str(dtype).removeprefix("torch.") + str(list(shape))
            for dtype, shape in zip(self.dtypes, self.shapes, strict=True)
        ]
        words += [] if self.reduction is None else [self.reduction]
        words += [] if self.root is None else [f"root {self.root}"]
        words += [] if self.members is None else [self.members]
        return f"{self.name}({', '.join(words)})"

    def difference(self, other):
        """The first field in which two signatures differ, as text for the error."""
        words = ("operations", "roots", "reductions", "dtypes", "shapes", "members")
        return next(word for word, mine, theirs in zip(words, self, other, strict=True) if mine != theirs)


def mismatch(where, what, rank, call, other_rank, other):
    """A MismatchError between the call of ``rank`` and one that was there before it."""
    return MismatchError(
        f"{where}: the {what} differ\n"
        f"  rank {rank} calls {call.signature}\n    at {call.site}\n"
        f"  rank {other_rank} called {other.signature}\n    at {other.site}"
    )


class RankCall:
    """One rank's part in a collective."""

    __slots__ = ("inputs", "outputs", "signature", "site")

    def __init__(self, signature, inputs, outputs, site):
        self.signature, self.inputs, self.outputs, self.site = signature, inputs, outputs, site


class Collective(Waitable):
    """A collective: one matched call of each rank of a group."""

    __slots__ = ("calls", "group", "number")

    def __init__(self, group, number):
        super().__init__()
        self.group, self.number = group, number
        self.calls = {}  # group rank -> RankCall, in order of arrival

    def add(self, rank, call):
        for there, other in self.calls.items():
            if call.signature != other.signature:
                ranks, what = self.group.ranks, call.signature.difference(other.signature)
                where = self.group.call_in_words(self.number)
                raise mismatch(where, what, ranks[rank], call, ranks[there], other)
            break  # the others agree with the first
        self.calls[rank] = call

    def wait_in_words(self):
        call = next(iter(self.calls.values()))
        absent = [rank for index, rank in enumerate(self.group.ranks) if index not in self.calls]
        where = self.group.call_in_words(self.number)
        return f"{call.signature}, {where}", f"missing: {ranks_in_words(absent)}"


class Message(Waitable):
    """One side of a point-to-point transfer. ``peer`` is a group rank, None in a receive from any."""

    __slots__ = ("group", "owner", "peer", "signature", "site", "tag", "tensor")

    def __init__(self, group, name, owner, peer, tag, tensor, site):
        super().__init__()
        self.group, self.owner, self.peer, self.tag = group, owner, peer, tag
        self.signature = Signature(name, dtypes=(tensor.dtype,), shapes=(tensor.shape,))
        self.tensor, self.site = tensor, site

    def meets(self, other):
        """Whether a posted send and a posted receive match. (They are in the mailbox of the receiver.)"""
        return self.tag == other.tag and self.peer in (None, other.owner) and other.peer in (None, self.owner)

    def wait_in_words(self):
        toward = "to" if self.signature.name == "send" else "from"
        peer = "any rank" if self.peer is None else f"rank {self.group.ranks[self.peer]}"
        tag = f", tag {self.tag}" if self.tag else ""
        return f"{self.signature} on {self.group}", f"{toward} {peer}{tag}"


class Mailbox:
    """Unmatched sends and receives of one receiver."""

    __slots__ = ("receives", "sends")

    def __init__(self):
        self.sends, self.receives = [], []

    def post(self, message):
        """Return the matching message if it is posted already; otherwise queue ``message``."""
        sending = message.signature.name == "send"
        theirs, mine = (self.receives, self.sends) if sending else (self.sends, self.receives)
        for index, other in enumerate(theirs):
            if message.meets(other):
                alike = other.signature._replace(name=message.signature.name)
                if message.signature != alike:
                    ranks = message.group.ranks
                    where = f"a message on {message.group}"
                    what = message.signature.difference(alike)
                    raise mismatch(where, what, ranks[message.owner], message, ranks[other.owner], other)
                return theirs.pop(index)
        mine.append(message)
        return None


class SharedGroup:
    """Shared state of a process group's ranks: the calls in progress."""

    def __init__(self, name, ranks, world, present):
        self.name, self.ranks = name, tuple(ranks)
        self.present = present  # how many of them run
        self.is_world = len(self.ranks) == world
        self.issued = [0] * len(self.ranks)
        self.open = {}  # number of the call -> Collective
        self.mailboxes = {}  # receiver -> Mailbox

    def __str__(self):
        return f"{'the world' if self.is_world else 'the group'} of {ranks_in_words(self.ranks)}"

    def call_in_words(self, number):
        return f"call {number + 1} on {self}"

    def join(self, rank, call):
        """The collective that this call of ``rank`` belongs to, and whether all its ranks are there now."""
        number = self.issued[rank]
        self.issued[rank] += 1
        collective = self.open.get(number)
        if collective is None:
            collective = self.open[number] = Collective(self, number)
        collective.add(rank, call)
        full = len(collective.calls) == self.present
        if full:
            del self.open[number]
        return collective, full

    def post(self, message):
        receiver = message.peer if message.signature.name == "send" else message.owner
        return self.mailboxes.setdefault(receiver, Mailbox()).post(message)

    def pending(self):
        """Pending calls: (rank, call, whom it waits for, call site). Calls that timed out are not listed: the rank got
        an error."""
        for collective in self.open.values():
            if not collective.given_up:
                words = collective.wait_in_words()
                yield from ((self.ranks[index], *words, call.site) for index, call in collective.calls.items())
        for mailbox in self.mailboxes.values():
            for message in mailbox.sends + mailbox.receives:
                if not message.given_up:
                    yield self.ranks[message.owner], *message.wait_in_words(), message.site

    def forget_tensors(self):
        """Of calls that were never completed: a rank that does not end, and keeps the group, must not keep them."""
        for collective in self.open.values():
            collective.calls.clear()
        self.open.clear(), self.mailboxes.clear()


class GroupCreations(SharedGroup):
    """The groups that ranks make with new_group.

    Torch names a group by how many its rank has made, and its members find one another by that name alone. So all ranks
    of the world make all groups in one order, except groups of one rank, which need no other rank.
    """

    def call_in_words(self, number):
        return f"call {number + 1} of new_group, which all ranks of the world make in one order"

    def join(self, rank, ranks, site):
        members = ranks_in_words(ranks) if len(ranks) > 1 else "one rank"
        super().join(rank, RankCall(Signature("new_group", members=members), None, None, site))
