"""DeepSpeed's model engine (forward, backward, step), which ``initialize`` returns, on this library's engine.

    loss = model_engine(batch)      forward of the module
    model_engine.backward(loss)     / gradient_accumulation_steps, x the scale; ZeRO reduces meanwhile
    model_engine.step()             at the end of an accumulation: norm, clip, step, rate; else nothing

Source: DeepSpeed, deepspeed/runtime/engine.py.
"""

import os
from contextlib import nullcontext
from pathlib import Path

import torch
import torch.distributed as dist

from ..checkpoint import load, save

LATEST = "latest"  # the file that has the last tag


class ModelEngine:
    """``engine`` is the library's, ``config`` what the file says."""

    def __init__(self, engine, config):
        self.engine, self.config, self.module = engine, config, next(iter(engine.stages.values()))
        self.optimizer, self.device = engine.optimizer, engine.device
        self.local_rank = int(os.environ.get("LOCAL_RANK", dist.get_rank()))
        self.micro_steps = self.global_steps = self.skipped_steps = 0
        self.done = None  # the last Step
        self._set_rate()

    def __call__(self, *inputs, **named):
        if self.engine.plan.pp * self.engine.plan.tp > 1:
            raise ValueError(
                "ModelEngine: with pipelines and tensor groups, call train_batch(iterator), as in DeepSpeed"
            )
        return self.module(*inputs, **named)

    def backward(self, loss):
        """Gradients are added up; those of the mean loss over an accumulation, and over data ranks."""
        engine, share = self.engine, loss / self.config.accumulation
        later = not (engine.plan.reduces_each or self.is_gradient_accumulation_boundary())
        with engine.zero[0].no_sync() if later else nullcontext():
            (engine.scaler.scale(share) if engine.scaler else share).backward()
        engine.loss += share.detach() / engine.plan.dp
        return loss

    def step(self):
        """At the end of an accumulation; else it counts."""
        if self.is_gradient_accumulation_boundary():
            self._step()
        self.micro_steps += 1

    def train_batch(self, data_iter):
        """A step, of ``gradient_accumulation_steps`` pairs (tokens, targets): the mean loss."""
        pairs = [next(data_iter) for _ in range(self.config.accumulation)]
        self.engine.forward_backward(*(torch.cat(each).to(self.device) for each in zip(*pairs)))
        self.micro_steps += self.config.accumulation
        self._step()
        return torch.tensor(self.done.loss)

    def _step(self):
        self.done = self.engine.optimizer_step()
        self.global_steps += 1
        self.skipped_steps += not self.done.applied
        self._set_rate()

    def _set_rate(self):
        """Of the next step. A step that overflows does not count."""
        if self.config["scheduler.type"] is not None:
            self.engine.set_options(**self.config.options_at(self.engine.steps))

    # What programs ask.

    def is_gradient_accumulation_boundary(self):
        return (self.micro_steps + 1) % self.config.accumulation == 0

    def train_batch_size(self):
        return self.config.batch

    def train_micro_batch_size_per_gpu(self):
        return self.config.micro

    def gradient_accumulation_steps(self):
        return self.config.accumulation

    def zero_optimization_stage(self):
        return self.engine.plan.zero

    def get_global_grad_norm(self):
        return self.done and self.done.norm

    def get_lr(self):
        return [group["lr"] for zero in self.engine.zero.values() for group in zero.optimizer.param_groups]

    @property
    def loss_scale(self):
        return self.engine.scaler.rule.scale if self.engine.scaler else 1.0

    def train(self, mode=True):
        for stage in self.engine.stages.values():
            stage.train(mode)
        return self

    def eval(self):
        return self.train(False)

    # Checkpoints.

    def save_checkpoint(self, save_dir, tag=None, client_state=None, save_latest=True):
        """All ranks call it: ``save_dir/tag``, of any mesh; ``client_state``: for JSON."""
        tag = str(f"global_step{self.global_steps}" if tag is None else tag)
        Path(save_dir).mkdir(parents=True, exist_ok=True)
        counted = {name: getattr(self, name) for name in ("micro_steps", "global_steps", "skipped_steps")}
        save(self.engine, Path(save_dir, tag), extra={"counted": counted, "client": client_state or {}})
        if save_latest and dist.get_rank() == 0:
            Path(save_dir, LATEST).write_text(tag)
        dist.barrier()

    def load_checkpoint(self, load_dir, tag=None):
        """The path and the client's state; None, None if no tag is given, and none is the latest."""
        if tag is None and not Path(load_dir, LATEST).exists():
            return None, None
        path = Path(load_dir, str(tag or Path(load_dir, LATEST).read_text()))
        _, extra = load(self.engine, path)
        vars(self).update(extra["counted"])
        self._set_rate()
        return str(path), extra["client"]
