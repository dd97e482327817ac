"""``deepspeed.initialize`` on this engine: a DeepSpeed training loop runs after changing its import.

    import tinydist.training as deepspeed

    model_engine, optimizer, loader, _ = deepspeed.initialize(args=args, model=model, training_data=data)
    for batch in loader:
        loss = model_engine(batch)      and so on: model_engine.py

Any module with pure data parallelism; a GPT also on a mesh with pp and tp, with ``train_batch``, DeepSpeed's method for
pipelines. Source: DeepSpeed, docs/_tutorials/getting-started.md, deepspeed/__init__.py.
"""

import os

import torch
import torch.distributed as dist
from torch import nn
from torch.utils.data import DataLoader, DistributedSampler

from ...launching.options import under_torchrun
from ...precision import LossScaler
from ...torch_internals import device_of_group
from ..engine import Engine
from ..mesh import data_rank, make_mesh, place_in
from ..parallelize import around, dtype_of, names_of, parallelize, seed_rng_per_rank
from .config import Config
from .ds_optimizers import is_tested
from .model_engine import ModelEngine


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
    """Returns a ``ModelEngine``, its optimizer, a loader of ``training_data`` or None, and None for the scheduler.

    ``config``, or ``args.deepspeed_config``: a ds_config.json. ``optimizer``: one of the program's, in place of the
    file's. ``mesh``: "dp=2,pp=2", by default all ranks are data-parallel. Raises ``ValueError`` for what cannot be.
    """
    init_distributed()
    source = config or config_params or getattr(args, "deepspeed_config", None)
    given = {"model": isinstance(model, nn.Module), "config": source, "no lr_scheduler": lr_scheduler is None}
    missing = [name for name, is_there in given.items() if not is_there]
    if missing:
        raise ValueError(f"initialize: pass a model, and a config that has the scheduler; {missing[0]} is missing")
    config = Config(source, mesh or f"dp={dist.get_world_size()}", zero_in_pipelines=zero_in_pipelines)
    engine = ModelEngine(made(model, config, *stepping(optimizer, model_parameters, config)), config)
    loader = training_data and loader_of(engine.engine, training_data, config, collate_fn)
    return engine, engine.optimizer, loader, None


def stepping(optimizer, parameters, config):
    """The class of optimizer, parameter groups, options."""
    if optimizer is None:
        if not any(path.startswith("optimizer.") for path in config.said):
            raise ValueError("initialize: pass optimizer=, or set optimizer in the config")
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
    if plan.pp * plan.cp * plan.tp * plan.ep > 1:
        return parallelize(model, plan, optimizer_class, groups, **options, **config.numbers)
    mesh = make_mesh(plan)
    blocks = [each for found in model.modules() if isinstance(found, nn.ModuleList) for each in found]
    groups_of = dict(group=mesh.get_group("shard"), replicas=mesh.get_group("replicate"))
    how = groups_of | config.numbers | options
    rule = how.pop("scaler_rule")
    zero = around(model.to(dtype_of(plan)), plan, blocks, optimizer_class, groups, **how)
    for bucket in zero.buckets:
        bucket.norm_weight = 1 / plan.replicas
    seed_rng_per_rank(plan, mesh)
    scaler = LossScaler(rule) if rule else None
    return Engine(plan, mesh, {0: model}, {0: zero}, [], names_of(model), None, None, scaler)


def loader_of(engine, data, config, collate_fn):
    """Of this data rank's rows, in DeepSpeed's order."""
    plan, rank = engine.plan, data_rank(engine.plan, place_in(engine.mesh))
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
