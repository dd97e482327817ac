"""Tracing: a record of each rank's operations, timed on a virtual clock; and a ledger of its memory."""


class TraceView(list):
    """A view of a trace that a notebook displays as a plot."""

    def __init__(self, trace, items):
        super().__init__(items)
        self.trace = trace
