"""Engine: a model that writes for many requests at once, pass by pass.

    engine = Engine(model, Continuous(slots=8, budget=64), blocks=256)
    for token in engine.stream(Request(prompt)): ...        others are served meanwhile
    engine.run(requests)                                    or all, until each has ended

What is written for a request depends on the model and on the request, its seed included: not on the policy, the blocks,
or whoever is served beside it, as far as sums that are taken in another order are the same.
"""

import torch

from ..attention import Decoder
from ..rules import each_of, takes
from .blocks import BlockPool
from .paged_cache import PagedCaches
from .policies import Continuous
from .request import Request, Served
from .sampling import next_tokens
from .scheduler import Policy, Scheduler


@takes(model=Decoder, policy=Policy)
class Engine:
    """``model`` with the memory of ``blocks`` blocks of ``block_size`` tokens.

    policy:        who shares a pass; None: ``Continuous()``.
    prefix_cache:  what one request computed serves others that begin alike.
    attend:        what computes attention; None: what the model has. ``fused_attention`` is fastest.

    ``rows`` says how many tokens the model has computed until now.
    """

    def __init__(self, model, policy=None, blocks=256, block_size=16, prefix_cache=True, attend=None):
        self.model = model
        self.pool = BlockPool(blocks, block_size, prefix_cache)
        self.scheduler = Scheduler(policy or Continuous(), self.pool)
        self.caches, self.rows = PagedCaches(model, self.pool, attend), 0

    @property
    def idle(self):
        return self.scheduler.idle

    @takes(request=Request)
    def add(self, request):
        """Let it wait, and return its ``Served``. Raises ``ValueError`` for what could never be served."""
        V = self.model.config.vocab_size
        if max(request.prompt) >= V:
            raise ValueError(f"Engine: tokens are from 0 to {V - 1}, got a prompt with {max(request.prompt)}")
        return self.scheduler.add(request)

    @takes(served=Served)
    def cancel(self, served):
        """Nobody waits for it any more: its blocks are free."""
        self.scheduler.cancel(served)

    @torch.inference_mode()
    def step(self):
        """One pass through the model. Returns what was written: (sequence, token) each."""
        try:
            step = self.scheduler.step()
            step.parts.sort(key=lambda part: part[1])  # those with equally many tokens meet their keys together
            logits = self._logits(step) if step.parts else None
            return self.scheduler.update(step, lambda ready: self._choose(logits, ready))
        except BaseException:  # an interrupt, too: what was half done is computed again
            self.scheduler.start_over()
            raise

    @takes(requests=each_of(Request))
    def run(self, requests):
        """Serve all: of each request, of each of its samples, the new tokens."""
        served = []
        try:
            served += map(self.add, requests)
            for each in served:
                while not each.done:  # all that run go on meanwhile
                    self.step()
        finally:
            for each in served:
                self.cancel(each)
        return [each.new for each in served]

    @takes(request=Request)
    def stream(self, request):
        """The tokens of its first sample, as they come; who stops reading is not served any more."""
        served, given = self.add(request), 0
        first = served.sequences[0]
        try:
            while given < len(first.new) or first.reason is None:
                if given < len(first.new):
                    yield first.new[given]
                    given += 1
                else:
                    self.step()
        finally:
            self.cancel(served)

    def _logits(self, step):
        """Of the last row of each part: [parts, V]."""
        self.caches.copy(step.copies)
        spans = [(sequence.table, sequence.computed, tokens) for sequence, tokens in step.parts]
        layout = self.caches.lay_out(spans)
        rows = [token for each, tokens in step.parts for token in each.tokens[each.computed :][:tokens]]
        logits = self.model(torch.tensor([rows], device=layout.positions.device), self.caches)
        self.rows += len(rows)
        return logits[0, layout.last]

    def _choose(self, logits, ready):
        if not ready:
            return []
        rows, sequences = zip(*ready)
        return next_tokens(logits[list(rows)], sequences)
