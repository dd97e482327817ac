"""The inference engine: serves many requests concurrently, one batched forward pass at a time.

    engine = LLMEngine(model, ContinuousBatching(max_num_seqs=8, max_num_batched_tokens=64), num_blocks=256)
    for token in engine.stream(Request(prompt)): ...        others are served meanwhile
    engine.run(requests)                                    or all, until each has finished

The output of a request depends only on the model and the request, including its seed: not on the policy, the block size
or concurrent requests (up to floating-point summation order).
"""

import torch

from ..attention import Decoder
from ..rules import each_of, validate
from .blocks import BlockPool
from .paged_cache import PagedCaches
from .request import Request, RequestState
from .sampling import next_tokens
from .scheduler import ContinuousBatching, Scheduler, SchedulingPolicy


@validate(model=Decoder, policy=SchedulingPolicy)
class LLMEngine:
    """``model`` with a KV cache of ``num_blocks`` blocks of ``block_size`` tokens.

    policy:        which sequences share a pass; None: ``ContinuousBatching()``.
    prefix_cache:  share KV-cache blocks between requests with a common prefix.
    attend:        the attention function; None: the model's. ``fused_attention`` is fastest.

    ``rows`` says how many tokens the model has computed until now.
    """

    def __init__(self, model, policy=None, num_blocks=256, block_size=16, prefix_cache=True, attend=None):
        self.model = model
        self.pool = BlockPool(num_blocks, block_size, prefix_cache)
        self.scheduler = Scheduler(policy or ContinuousBatching(), self.pool)
        self.caches, self.rows = PagedCaches(model, self.pool, attend), 0

    @property
    def idle(self):
        return self.scheduler.idle

    @validate(request=Request)
    def add(self, request):
        """Add to the waiting queue. Returns its ``RequestState``. Raises ``ValueError`` if it could never be served."""
        V = self.model.config.vocab_size
        if max(request.prompt) >= V:
            raise ValueError(f"LLMEngine: token ids must be from 0 to {V - 1}, got a prompt with {max(request.prompt)}")
        return self.scheduler.add(request)

    @validate(state=RequestState)
    def cancel(self, state):
        """End a request that is no longer wanted; its blocks are free."""
        self.scheduler.cancel(state)

    @torch.inference_mode()
    def step(self):
        """Run one forward pass. Returns the generated tokens, as (sequence, token)."""
        try:
            step = self.scheduler.schedule()
            step.scheduled.sort(key=lambda each: each[1])  # sequences with as many tokens meet their keys together
            logits = self._logits(step) if step.scheduled else None
            return self.scheduler.update(step, lambda ready: self._sample(logits, ready))
        except BaseException:  # an interrupt, too: what was half done is computed again
            self.scheduler.preempt_all()
            raise

    @validate(requests=each_of(Request))
    def run(self, requests):
        """Serve all requests to completion. Returns the output tokens of each sample of each request."""
        states = []
        try:
            states += map(self.add, requests)
            while not all(each.finished for each in states):
                self.step()
        finally:
            for each in states:
                self.cancel(each)
        return [each.output_tokens for each in states]

    @validate(request=Request)
    def stream(self, request):
        """Stream the tokens of its first sample. Closing the generator cancels the request."""
        state = self.add(request)
        first = state.sequences[0]
        try:
            for i in range(request.max_new_tokens):
                while i == len(first.output_tokens):
                    if first.finish_reason:
                        return
                    self.step()
                yield first.output_tokens[i]
        finally:
            self.cancel(state)

    def _logits(self, step):
        """Of the last row of each sequence: [scheduled, V]."""
        self.caches.copy(step.copies)
        batch = self.caches.lay_out([(each.table, each.num_computed_tokens, new) for each, new in step.scheduled])
        rows = [token for each, new in step.scheduled for token in each.tokens[each.num_computed_tokens :][:new]]
        logits = self.model(torch.tensor([rows], device=batch.positions.device), self.caches)
        self.rows += len(rows)
        return logits[0, batch.last]

    def _sample(self, logits, ready):
        if not ready:
            return []
        rows, sequences = zip(*ready)
        return next_tokens(logits[list(rows)], sequences)
