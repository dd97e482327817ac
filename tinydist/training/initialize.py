"""Programs in DeepSpeed's shape, on this library's engine: with its import changed, such a loop runs.

    import tinydist.training as deepspeed

    model_engine, optimizer, loader, _ = deepspeed.initialize(args=args, model=model, training_data=data)
    for batch in loader:
        loss = model_engine(batch)      forward of the module
        model_engine.backward(loss)     / gradient_accumulation_steps, x the scale; ZeRO reduces meanwhile
        model_engine.step()             at the end of an accumulation: norm, clip, step, rate; else nothing

Any module whose ranks differ in nothing but data; a GPT on a mesh with pp and tp, too, by ``train_batch``, which is
DeepSpeed's for pipelines. Source: DeepSpeed, docs/_tutorials/getting-started.md, deepspeed/__init__.py.
"""

import os
from contextlib import nullcontext
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.utils.data import DataLoader, DistributedSampler

from ..precision import LossScaler
from ..simulator.torch_internals import device_of_group
from ..torchrun import under_torchrun
from .checkpoint import load, save
from .config import Config
from .ds_keys import is_tested
from .engine import Engine
from .mesh import make_mesh, place_in
from .parallelize import around, draw_apart, parallelize

LATEST = "latest"  # the file that has the last tag


def initialize(
    args=None,
    model=None,
    optimizer=None,
    model_parameters=None,
    training_data=None,
    lr_scheduler=None,
    collate_fn=None,
    config=None,
    config_params=None,
    mesh=None,
    dist_init_required=None,
    zero_in_pipelines=False,
):
    """A ``ModelEngine``, its optimizer, a loader of ``training_data`` or None, and None: the engine sets the rates.

    ``config``, or ``args.deepspeed_config``: a ds_config.json. ``optimizer``: one of the program's, in place of the
    file's. ``mesh``: "dp=2,pp=2", by default all ranks are data-parallel. Raises ``ValueError`` for what cannot be.
    """
    init_distributed()
    source = config or config_params or getattr(args, "deepspeed_config", None)
    given = {"model": isinstance(model, nn.Module), "config": source, "no lr_scheduler": lr_scheduler is None}
    missing = [name for name, is_there in given.items() if not is_there]
    if missing:
        raise ValueError(f"initialize: it needs a model, and a config, which says the scheduler; {missing[0]} is wrong")
    config = Config(source, mesh or f"dp={dist.get_world_size()}", zero_in_pipelines=zero_in_pipelines)
    engine = ModelEngine(made(model, config, *stepping(optimizer, model_parameters, config)), config)
    loader = training_data and loader_of(engine.engine, training_data, config, collate_fn)
    return engine, engine.optimizer, loader, None


def stepping(optimizer, parameters, config):
    """The class of optimizer, parameter groups, options."""
    if optimizer is None:
        if not any(path.startswith("optimizer.") for path in config.said):
            raise ValueError("initialize: neither optimizer= nor the config's optimizer says how to step")
        return config.optimizer_class, None if parameters is None else list(parameters), config.options
    kind, stage = type(optimizer), config.plan.zero
    if stage and not is_tested(kind) and not config["zero_allow_untested_optimizer"]:
        words = f"zero_allow_untested_optimizer must be true for {kind.__name__} with ZeRO({stage}), as in DeepSpeed"
        raise ValueError(f"initialize: {words}")
    return kind, optimizer.param_groups, {}


def made(model, config, optimizer_class, groups, options):
    """An ``Engine``: by ``parallelize`` for pipelines and tensor groups; else around any module."""
    plan = config.plan
    model.to(device_of_group())
    if plan.pp * plan.tp > 1:
        return parallelize(model, plan, optimizer_class, groups, **options, **config.numbers)
    mesh = make_mesh(plan)
    names = {parameter: name for name, parameter in model.named_parameters()}
    blocks = [each for found in model.modules() if isinstance(found, nn.ModuleList) for each in found]
    groups_of = dict(group=mesh.get_group("shard"), replicas=mesh.get_group("replicate"))
    rule, dtype = config.numbers.values()
    how = dict(**groups_of, reduce_dtype=dtype, **options)
    zero = around(model.to(plan.dtype), plan, blocks, optimizer_class, groups, **how)
    for bucket in zero.buckets:
        bucket.counts = 1 / plan.replicas
    draw_apart(plan, mesh)
    scaler = LossScaler(rule) if rule else None
    return Engine(plan, mesh, {0: model}, {0: zero}, [], names, None, None, scaler)


def loader_of(engine, data, config, collate_fn):
    """Of this data rank's rows, in DeepSpeed's order."""
    _, replicate, shard, _ = place_in(engine.mesh)
    plan, rank = engine.plan, replicate * engine.plan.shard + shard
    drop_last = bool(config["dataloader_drop_last"])
    sampler = DistributedSampler(data, plan.dp, rank)
    return DataLoader(data, config.micro, sampler=sampler, collate_fn=collate_fn, drop_last=drop_last)


def init_distributed(dist_backend=None, **_):
    """The default group, if there is none: of torchrun's processes, or of this one alone."""
    if dist.is_initialized():
        return
    backend = dist_backend or ("nccl" if torch.cuda.is_available() else "gloo")
    if under_torchrun():
        if backend == "nccl":
            torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
        dist.init_process_group(backend)
    else:
        dist.init_process_group(backend, store=dist.HashStore(), rank=0, world_size=1)


def add_config_arguments(parser):
    """Those of DeepSpeed's launcher."""
    group = parser.add_argument_group("DeepSpeed")
    group.add_argument("--deepspeed", action="store_true", help="for the program to read")
    group.add_argument("--deepspeed_config", help="a ds_config.json")
    return parser


class ModelEngine:
    """What ``initialize`` returns. ``engine`` is the library's, ``config`` what the file says."""

    def __init__(self, engine, config):
        self.engine, self.config, self.module = engine, config, next(iter(engine.stages.values()))
        self.optimizer, self.device = engine.together, engine.device
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
        self.skipped_steps += not self.done.taken
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
