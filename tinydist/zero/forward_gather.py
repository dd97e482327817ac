"""The all-gather of stages 1 and 2, overlapped with the next forward.

    after the step       step | gather 1 | gather 2 | gather 3 | layer 1, 2, 3 ...
    overlapped           step | gather 1 | layer 1   | layer 2  | layer 3 ...
                                           gather 2   gather 3

A layer waits for its own bucket alone, and starts the gather of the one after the next: at most two are in progress.
The same bytes are sent. Megatron-LM: ``--overlap-param-gather``.
"""

from collections import deque

IN_PROGRESS = 2


class ForwardGather:
    """Of ``buckets``, in the order in which forward uses them, for ``module``."""

    def __init__(self, module, buckets):
        self.buckets, self.stale = buckets, deque()
        bucket_of = {parameter: bucket for bucket in buckets for parameter in bucket.parameters}
        for layer in module.modules():
            own = {bucket_of[parameter] for parameter in layer.parameters(recurse=False) if parameter in bucket_of}
            if own:
                layer.register_forward_pre_hook(lambda layer, inputs, own=own: self._wait_for(own))
        module.register_forward_hook(lambda module, inputs, output: self.finish())
        module.register_state_dict_pre_hook(lambda module, prefix, keep_vars: self.finish())

    def start(self):
        """The shards have new weights: gather the first buckets."""
        for bucket in self.buckets:
            bucket.after_step()
            bucket.bind_views()  # to the shards, so that nobody reads what is stale
        self.stale = deque(self.buckets)
        self._start_first()

    def finish(self):
        self._wait_for(set(self.stale))

    def _wait_for(self, buckets):
        waiting = buckets.intersection(self.stale)
        while waiting:
            first = self.stale.popleft()
            first.gather()
            self._start_first()
            waiting.discard(first)

    def _start_first(self):
        for bucket in list(self.stale)[:IN_PROGRESS]:
            bucket.start_gather()
