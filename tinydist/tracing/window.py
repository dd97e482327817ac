"""A part of a run: what each rank did between two moments of its own.

By name, each rank has its own moments, and takes part with what it did between them, in the order of its record. By
seconds, all have the same, and take part with what began from the first on and before the second. Time is counted from
the earliest begin, and ends with the latest end. What a transfer carries belongs to the rank that sends it, if it has
issued the transfer in between. A rank that is not run takes part in the transfers of the others.
"""

from .held import Change, RankMemory
from .moments import moment_of


class Window:
    def __init__(self, memory, begin, end):
        ran = [held for held in memory if not held.is_idle]
        self.begins = {held.rank: moment_of(begin, held.named, held.rank) for held in ran}
        self.ends = {held.rank: moment_of(end, held.named, held.rank, at_end=True) for held in ran}
        self.zero = max(0.0, min((each.time for each in self.begins.values()), default=0.0))
        self.seconds = max((each.time for each in self.ends.values()), default=0.0) - self.zero
        self.transfers = set()  # that a rank has issued in it

    def has(self, event):
        """To be asked of the events of all ranks in their order."""
        begin, end = self.begins.get(event.rank), self.ends.get(event.rank)
        if begin is None or event.issued is None:
            return event.transfer in self.transfers
        after = begin.time <= event.issued if begin.place is None else begin.place < event.place
        before = event.issued < end.time if end.place is None else event.place < end.place
        if after and before and event.transfer and event.name != "wait":
            self.transfers.add(event.transfer)
        return after and before

    def memory_of(self, held):
        """What was held at the begin, and the changes since."""
        if held.is_idle:
            return held
        begin, end = self.begins[held.rank], self.ends[held.rank]
        changes, start = [], {}
        for change in held.changes:
            if not begin.before(change.seconds, change.place):
                key = change.purpose, change.label, change.shard
                start[key] = start.get(key, 0) + change.nbytes
            elif not end.before(change.seconds, change.place):
                changes.append(change._replace(seconds=change.seconds - self.zero))
        at = max(0.0, begin.time - self.zero)
        there = [
            Change(at, purpose, nbytes, label, shard, -1) for (purpose, label, shard), nbytes in start.items() if nbytes
        ]
        named = [each.shifted(-self.zero) for each in held.named if self.has_moment(each, begin, end)]
        return RankMemory.of_changes(there + changes, held.rank, tuple(named))

    def has_moment(self, each, begin, end):
        return each.place == begin.place or (
            begin.before(each.start, each.place) and not end.before(each.start, each.place)
        )
