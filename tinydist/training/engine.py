"""The training step of a parallelized model, for any plan.

    forward_backward   runs all microbatches through the pipeline; ZeRO of each stage reduces gradients in backward
    optimizer_step     tied gradients | one all-reduce: loss, norm | clip | finite? | step on this rank's shards

Bytes that a rank sends in a step, of its N parameters of e bytes, with gradients in fp32; d = replicate, s = shards,
t = tp; M microbatches of b rows, T tokens (of a context rank), width D, k of E experts for a token; R = M if gradients
are reduced in each, else 1:

    tp          in a layer 2 all-reduces of b T D e forward, 2 backward, for each microbatch: 2 (t-1)/t of each
    pp          M b T D e down, and M up; with sequence parallelism 1/t of it; tied: 4 bytes of each number of a shard
    cp          in a layer what context_parallel sends of b rows, for each microbatch
    ep          in a layer 4 all-to-alls of k b T D e, for each microbatch: (ep-1)/ep of each; 8 E of counts
    shard       4 N (s-1)/s R       reduce-scatter, of fp32; cp ranks are among these, or in ZeRO 0 the replicas
                e N (s-1)/s         all-gather after the step; in ZeRO 3, two in every microbatch instead
    replicate   4 N 2 (d-1)/d R/s   all-reduce of gradients, of fp32

(Parameters of experts: the last two with the ranks that have the same ones.)

All stages on all ranks take one optimizer step together: one global norm, one skip decision.

    |g|^2 = sum over ranks, over buckets     |g of the bucket's shard|^2 / copies        every number of the model once

    a number of a shard is on    c of the tp ranks       c: all for a norm's weight, 1 for a part of a matrix
                                 replicate ranks         HSDP, or plain data parallel
                                 2 stages                if it is tied: the last stage's copy counts 0

One all-reduce over the world brings the square of the norm, and with it the loss, which only last stages know.

Sources: Narayanan et al., Megatron-LM, 2021, section 3; Rajbhandari et al., ZeRO, 2019, section 7.
"""

from typing import NamedTuple

import torch
import torch.distributed as dist
from torch._subclasses import FakeTensor

from ..context_parallel import shard_sequence
from ..pipeline_parallel import Worker, make_schedule
from ..pipeline_parallel.tied_weights import add_that_of
from ..plan import SCHEDULES
from ..rules import amount, validate
from ..zero.sharding import at_least_fp32


class Step(NamedTuple):
    """The same on all ranks. (NaN where tensors are fake.)"""

    loss: float  # the mean over the global batch
    norm: float | None  # of all gradients, before they were clipped; None if the plan has no max_norm
    applied: bool  # False: a gradient overflowed on some rank, and no rank stepped


class Engine:
    """A parallelized model, as returned by ``parallelize``. A training loop needs only ``step``.

    plan, mesh     the ``Plan``, and the ``DeviceMesh`` with its axes
    stages         number -> module, of this rank
    zero           number -> what has its parameters, gradients and optimizer states
    names          parameter of this rank -> its name in the whole model. A tied copy has that of the original
    scaler         a ``LossScaler``, for fp16
    buffers        name in the whole model -> buffer, of this rank: biases of routers
    steps          number of optimizer steps taken
    """

    def __init__(self, plan, mesh, stages, zero, tied, names, cross_entropy, width, scaler):
        self.plan, self.mesh, self.stages, self.zero, self.scaler = plan, mesh, stages, zero, scaler
        mine = [parameter for stage in stages.values() for parameter in stage.parameters()]
        self.buffers = {names[buffer]: buffer for stage in stages.values() for buffer in stage.buffers()}
        self.names = {parameter: names[parameter] for parameter in mine}
        self.copies = self.names.keys() & {copy for *_, copy in tied}  # no stage of others is kept
        self.cross_entropy, self.width = cross_entropy, width
        self.device, self.dtype = mine[0].device, mine[0].dtype
        self.schedule, self.optimizer = schedule_of(plan), MultiStageOptimizer(zero.values())
        self.pipeline = mesh.get_group("pp")
        self.upward = dist.new_group(dist.get_process_group_ranks(self.pipeline), use_local_synchronization=True)
        self.tied = list(self._tied(tied))
        self.workers, self.steps = {}, 0  # shape of a batch -> a Worker
        self.after_step = []  # called when one was applied
        none = torch.zeros((), device=self.device, dtype=self.dtype)
        self.loss = at_least_fp32(none)  # this rank's summand, of what has been added up

    def _tied(self, tied):
        """(bucket, the rank of the pipeline that has the other one), of this rank."""
        for first, parameter, last, copy in tied:
            for stage, own, other in ((first, parameter, last), (last, copy, first)):
                if stage in self.stages and own.requires_grad:
                    bucket = self.zero[stage].reduction.bucket_of[own]
                    bucket.norm_weight *= own is parameter  # the elements of the copy are counted there
                    yield bucket, self.schedule.rank_of[other]

    # A step.

    def step(self, tokens=None, targets=None, lr=None):
        """A training step on this data-parallel rank's rows [B/dp, T]: the same on its pipeline, tensor and context
        ranks, of which each takes its tokens.

        Only the first stage reads tokens, only the last targets: elsewhere one may be None, the other says the shape.
        """
        self.forward_backward(tokens, targets)
        return self.optimizer_step(lr)

    @validate(tokens=torch.Tensor, targets=torch.Tensor)
    def forward_backward(self, tokens=None, targets=None):
        """Accumulates gradients. Takes the same arguments as ``step``."""
        one = torch.ones((), device=self.device)
        self.scale = self.scaler.scale(one) if self.scaler else one
        self.loss += self._summand(self._worker(tokens, targets).step(*self._of_context_rank(tokens, targets)))

    @validate(lr=amount)
    @torch.no_grad()
    def optimizer_step(self, lr=None):
        """The optimizer step on the accumulated gradients, which are cleared. Returns a ``Step``."""
        if lr is not None:
            self.set_lr(float(lr))
        for bucket, other in self.tied:
            add_that_of(other, bucket.grad, self.pipeline)
        if self.scaler:
            self.scaler.unscale_(self.optimizer)
        loss, norm = self._of_all_ranks()
        applied = self._step()
        self.optimizer.zero_grad()
        self.loss.zero_()
        self.steps += applied
        for call in self.after_step if applied else ():
            call()
        return Step(loss, norm, applied)

    def _of_all_ranks(self):
        """The mean loss, and the norm of all gradients, which are clipped."""
        limit = self.plan.max_norm
        square = torch.zeros_like(self.loss) if limit is None else self.optimizer.squared_norm()
        total = torch.stack([self.loss, square])
        dist.all_reduce(total)
        norm = total[1].sqrt() * self.optimizer.gradient_factor
        if limit is not None:
            self.optimizer.clip(norm, limit)
        return known(total[0]), None if limit is None else known(norm)

    def _step(self):
        """Was it applied?"""
        if self.scaler is None:
            self.optimizer.step()
            return True
        applied = self.scaler.step(self.optimizer)
        self.scaler.update()
        return applied

    def set_lr(self, lr):
        self.set_options(lr=lr)

    def set_options(self, **options):
        """Of the optimizer: ``betas=(0.8, 0.99)``."""
        self.optimizer.set_options(**options)

    @validate(tokens=torch.Tensor, targets=torch.Tensor)
    @torch.no_grad()
    def evaluate(self, tokens=None, targets=None):
        """The mean loss over all data-parallel ranks, in eval mode and without gradients."""
        for stage in self.stages.values():
            stage.eval()
        self.scale = 1.0
        loss = self._summand(self._worker(tokens, targets).evaluate(*self._of_context_rank(tokens, targets)))
        for stage in self.stages.values():
            stage.train()
        dist.all_reduce(loss)
        return known(loss)

    def _summand(self, loss):
        """Of the mean over all data-parallel ranks; each has its loss on all ranks of its tensor group; 0 elsewhere."""
        if loss is None:
            return torch.zeros_like(self.loss)
        return loss.detach() / (self.scale * self.plan.dp * self.plan.cp * self.plan.tp)

    def _loss(self, logits, targets):
        """In fp32, as a mean over many tokens needs."""
        return self.cross_entropy(at_least_fp32(logits.flatten(0, 1)), targets.flatten()) * self.scale

    def _of_context_rank(self, *batch):
        """Of each sequence the tokens that this rank has."""
        if self.plan.cp == 1:
            return batch
        group = self.mesh.get_group("cp")
        return [tensor if tensor is None else shard_sequence(tensor, group) for tensor in batch]

    # The pipeline.

    def _worker(self, tokens, targets):
        shape = getattr(targets if tokens is None else tokens, "shape", None)
        if shape not in self.workers:
            self.workers[shape] = self._new_worker(*between_stages(self.plan, shape), self.width)
        return self.workers[shape]

    def _new_worker(self, *between):
        return Worker(
            self.schedule,
            self.stages,
            torch.empty(between, dtype=self.dtype, device="meta"),
            self._loss,
            group=self.pipeline,
            grad_group=self.upward,
            no_sync=None if self.plan.reduces_each else {number: zero.no_sync for number, zero in self.zero.items()},
        )


def schedule_of(plan):
    """Of the pipeline; one of a single stage accumulates gradients."""
    return make_schedule(SCHEDULES[plan.schedule], plan.pp, plan.microbatches, plan.chunks)


def between_stages(plan, shape):
    """[rows, tokens] of what passes between stages, of a data rank's batch [rows, tokens]."""
    if shape is None or len(shape) != 2 or shape[0] % plan.microbatches:
        rule, got = f"B/dp divisible by microbatches ({plan.microbatches})", shape and list(shape)
        raise ValueError(f"step: tokens or targets must be [B/dp, T], {rule}, got {got}")
    for words in plan.uneven(shape[1]):
        raise ValueError(f"step: {words}")
    return shape[0] // plan.microbatches, shape[1] // (plan.cp * (plan.tp if plan.sequence_parallel else 1))


def known(number):
    return float("nan") if isinstance(number, FakeTensor) else number.item()


class MultiStageOptimizer:
    """``zeros``: a ``ZeRO1``, ``ZeRO2`` or ``ZeRO3`` of each stage of this rank. Seen by a
    ``LossScaler`` as one optimizer.
    """

    def __init__(self, zeros):
        self.zeros = list(zeros)

    @property
    def param_groups(self):
        return [group for zero in self.zeros for group in zero.param_groups]

    @property
    def gradient_factor(self):
        return self.zeros[0].gradient_factor

    @gradient_factor.setter
    def gradient_factor(self, factor):
        for zero in self.zeros:
            zero.gradient_factor = factor

    def squared_norm(self):
        """This rank's summand, of gradients as they are."""
        return sum(zero.squared_norm() for zero in self.zeros)

    def clip(self, norm, max_norm):
        """The gradients, whose global norm is ``norm``."""
        for zero in self.zeros:
            zero.clip_grads_with_norm_(max_norm, norm)

    def step(self):
        for zero in self.zeros:
            zero.step()

    def zero_grad(self):
        for zero in self.zeros:
            zero.zero_grad()

    def set_options(self, **options):
        """Of the optimizer, in all groups."""
        for zero in self.zeros:
            for group in zero.optimizer.param_groups:
                group |= options
