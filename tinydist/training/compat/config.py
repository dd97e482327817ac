"""Parses DeepSpeed's ds_config.json into a plan, optimizer, learning-rate schedule, loss scaling and batch sizes.

    file -> said           each key by the rule that it has in ds_keys.py; "auto" filled, as transformers' Trainer does
    said -> what it says   or as DeepSpeed has it by default

    train_batch_size = train_micro_batch_size_per_gpu x gradient_accumulation_steps x dp      two of them give the third

Invalid values raise a ``ConfigError`` with the key and the rule. Keys without effect here are in ``config.ignored``.
Source: DeepSpeed, runtime/config.py.
"""

from inspect import signature

import torch

from ...plan import DTYPES, Plan
from ...precision import HysteresisLossScale, StaticLossScale
from ...rules import holds, shown, words_of
from .ds_file import key_of, leaves, read, require, unknown
from .ds_keys import AUTO, KEYS, Key
from .ds_optimizers import ELSEWHERE, OPTIMIZERS
from .ds_schedules import PARAMETERS, SCHEDULES, Course

REUSE = "zero_optimization.stage3_max_reuse_distance"
BATCH, MICRO, STEPS = "train_batch_size", "train_micro_batch_size_per_gpu", "gradient_accumulation_steps"


class Config:
    """Of what a file says, and a mesh.

    source:             a path, or what JSON makes of it.
    mesh:               "dp=2,pp=2,tp=2". Of DeepSpeed's sizes, dp is the number of GPUs that each have other rows.
    auto:               options of a command line, which fill "auto" (ds_keys.AUTO). None: there are none.
    given:              names of those that were typed: they say what the file does not, and must not contradict it.
    zero_in_pipelines:  allow ZeRO 2 and 3 with pipelines, which DeepSpeed refuses.
    choices:            of the ``Plan``, those that no key says.

    plan, optimizer_class, options, course, scaler_rule, ignored (key -> why)
    """

    def __init__(self, source, mesh="dp=1", auto=None, given=(), zero_in_pipelines=False, **choices):
        self.sizes = Plan.parse(mesh)
        self.said, self.zero_in_pipelines = dict(leaves(read(source))), zero_in_pipelines
        self._fill(auto, given)
        self.ignored = {path: key.idle for path, key in self._held() if key.idle} | self._without_effect(auto)
        self.batch, self.micro, self.accumulation = self._batch()
        for holds_, words in self.rules():
            require(holds_, words)
        self.optimizer_class, self.options = self._optimizer()
        self.course = self._course()
        self.plan = Plan.parse(mesh, **choices | self._choices())

    def __getitem__(self, path):
        """What a key says, or what it is by default."""
        found = KEYS
        for name in path.split("."):
            found = found[name]
        return self.said.get(path, found.default)

    # From the file to what it says.

    def _fill(self, auto, given):
        for path, value in self.said.items():
            if value == "auto" and (path in AUTO or key_of(path)):  # others are unknown
                require(path in AUTO, f'{path} is "auto", which no command-line option fills: set a value')
                words = f'{path} is "auto", which only a command line fills: set a value'
                require(auto is not None, words)
                self.said[path] = AUTO[path][1](auto)
        kind = self.said.get("scheduler.type")
        require(
            kind is None or "lr_schedule" not in given,
            f"--lr-schedule cannot be passed together with scheduler.type {shown(kind)}",
        )
        for path, (option, value) in AUTO.items():
            if option in given and (path in self.said or not path.startswith("scheduler.")):
                chosen, name = value(auto), option.replace("_", "-")
                words = f"{path} is {shown(self.said.get(path))}, but --{name} says {shown(chosen)}: they must agree"
                require(self.said.setdefault(path, chosen) == chosen, words)

    def _held(self):
        """Each key that is said, once its rule holds: params by their optimizer's, and their scheduler's."""
        params = {"optimizer.params.": self._optimizer_params(), "scheduler.params.": self._scheduler_params()}
        for path, value in self.said.items():
            inside = next((start for start in params if path.startswith(start)), None)
            known, name = (params[inside], path.removeprefix(inside)) if inside else (None, path)
            key = key_of(path) if known is None else known.get(name)
            if key is None:
                raise unknown(path, name, known)
            require(holds(key.rule, value), f"{path} must be {words_of(key.rule)}, got {shown(value)}")
            yield path, key

    def _without_effect(self, auto):
        """Keys that other keys, or the command line, leave nothing to say."""
        found, said = {}, sorted(self.said)
        if not self["zero_optimization.stage"]:  # DeepSpeed's optimizers without ZeRO do not read them
            why = "without ZeRO, every overflow halves the scale"
            found |= {path: why for path in said if path in ("fp16.hysteresis", "fp16.consecutive_hysteresis")}
        if self["zero_optimization.stage"] < 3 and REUSE in self.said:
            found[REUSE] = "it is for stage 3, which alone frees parameters"
        if not self["fp16.enabled"]:
            found |= {
                path: "fp16 is not enabled" for path in said if path.startswith("fp16.") and path[5:] != "enabled"
            }
        if auto is not None and "dataloader_drop_last" in self.said:
            found["dataloader_drop_last"] = "train draws full batches only"
        return found

    def _optimizer_params(self):
        return self._named("optimizer.type", OPTIMIZERS, lower=True).params

    def _scheduler_params(self):
        if "scheduler.type" not in self.said:
            require(not any(path.startswith("scheduler.") for path in self.said), "scheduler needs a type")
            return {}
        made = self._named("scheduler.type", SCHEDULES)
        return {name: Key(PARAMETERS[name]) for name in signature(made).parameters if name != "lr"}

    def _named(self, path, table, lower=False):
        name = self[path]
        require(isinstance(name, str), f"{path} must be a string, got {shown(name)}")
        known = name.lower() if lower and name.lower() in (*table, *ELSEWHERE) else name
        require(
            known not in ELSEWHERE, f"{path}: {name} is DeepSpeed's own, not supported; supported: {', '.join(table)}"
        )
        require(known in table, f"{path} must be one of {', '.join(table)}, got {shown(name)}")
        return table[known]

    # Rules between keys.

    def _batch(self):
        """As DeepSpeed: what is missing follows, rounded down; then all must agree."""
        batch, micro, steps, dp = *(self.said.get(path) for path in (BATCH, MICRO, STEPS)), self.sizes.dp
        require(batch or micro, f"{BATCH} or {MICRO} must be given: {BATCH} = {MICRO} x {STEPS} x dp")
        if steps is None:
            steps = batch // micro // dp if batch and micro else 1
        micro = micro or batch // dp // steps
        batch = batch or micro * steps * dp
        product = f"{MICRO}({micro}) x {STEPS}({steps}) x dp({dp})"
        require(batch == micro * steps * dp, f"{BATCH}({batch}) must be {product} = {micro * steps * dp}")
        return batch, micro, steps

    def rules(self):
        stage, pp = self["zero_optimization.stage"], self.sizes.pp
        both = self["fp16.enabled"] and self["bf16.enabled"]
        yield not both, "fp16.enabled and bf16.enabled are mutually exclusive: a parameter has one dtype"
        words = f"zero_optimization.stage({stage}) must be below 2 with a pipeline, pp({pp}), as in DeepSpeed"
        yield pp == 1 or stage < 2 or self.zero_in_pipelines, f"{words} (allowed here with zero_in_pipelines)"
        yield (
            not self.offloads or stage,
            "zero_optimization.offload_optimizer moves shards: stage must be 1, 2 or 3, got 0",
        )
        for of, old in (("optimizer", "cpu_offload"), ("param", "cpu_offload_param")):
            old, new = f"zero_optimization.{old}", f"zero_optimization.offload_{of}"
            both = self.said.get(old) is not None and any(path.startswith(f"{new}.") for path in self.said)
            yield not both, f"{old} is deprecated, and cannot be given together with {new}, which replaced it"
        params = self.device("param") == "cpu"
        yield not params or stage == 3, f"zero_optimization.offload_param requires stage 3, got stage({stage})"
        words = f"zero_allow_untested_optimizer must be true for {self['optimizer.type']} with ZeRO, as in DeepSpeed"
        tested = self._named("optimizer.type", OPTIMIZERS, lower=True).tested
        yield tested or not stage or self["zero_allow_untested_optimizer"], words
        stages = self["pipeline.stages"]
        yield stages in (None, pp), f"pipeline.stages({stages}) must be the mesh's, pp({pp})"

    def device(self, of):
        old = self["zero_optimization.cpu_offload" + ("_param" if of == "param" else "")]
        return "cpu" if old else self[f"zero_optimization.offload_{of}.device"]

    @property
    def offloads(self):
        return "cpu" in (self.device("optimizer"), self.device("param"))

    # What it says.

    def _choices(self):
        recompute = {"recompute": "full"} if self["pipeline.activation_checkpoint_interval"] else {}
        return recompute | dict(
            zero=self["zero_optimization.stage"],
            microbatches=self.accumulation,
            precision=self.precision,
            max_norm=self["gradient_clipping"] or None,
            offload=self.offloads,
        )

    @property
    def precision(self):
        return next((name for name in ("fp16", "bf16") if self[f"{name}.enabled"]), "fp32")

    def _optimizer(self):
        optimizer = self._named("optimizer.type", OPTIMIZERS, lower=True)
        options = {name: key.default for name, key in optimizer.params.items() if not key.idle}
        options |= {name: value for name, value in self._params("optimizer").items() if name in options}
        own = {name: options.pop(name, None) for name in ("adam_w_mode", "torch_adam")}
        made = optimizer.made
        if own["adam_w_mode"] is False and self["optimizer.type"].lower() == "adam":
            made = torch.optim.Adam
        if own["torch_adam"] and made is torch.optim.AdamW and "optimizer.params.weight_decay" not in self.said:
            options["weight_decay"] = 0.01  # torch's default, in place of DeepSpeed's
        words = "optimizer.params.nesterov needs a momentum > 0, and no dampening"
        require(not options.get("nesterov") or (options["momentum"] and not options["dampening"]), words)
        return made, options

    def _params(self, section):
        start = f"{section}.params."
        return {path.removeprefix(start): value for path, value in self.said.items() if path.startswith(start)}

    def _course(self):
        lr = self.options["lr"]
        if self["scheduler.type"] is None:
            return Course(lr, lambda i: lr)
        schedule = SCHEDULES[self["scheduler.type"]]
        params, needed = self._params("scheduler"), signature(schedule).parameters
        missing = [name for name, each in needed.items() if each.default is each.empty and name not in {"lr", *params}]
        require(
            not missing, f"scheduler.params.{missing[0] if missing else ''} must be given for {self['scheduler.type']}"
        )
        return schedule(lr, **params)

    @property
    def numbers(self):
        """What ``parallelize`` takes besides: how a loss is scaled, in which dtype gradients are added and sent, and
        which parameters stay gathered after forward.
        """
        dtype = self["communication_data_type"] or self["data_types.grad_accum_dtype"]
        reuse = {"max_reuse_distance": self[REUSE]} if self["zero_optimization.stage"] == 3 else {}
        return {"scaler_rule": self.scaler_rule, "reduce_dtype": dtype and getattr(torch, DTYPES[dtype])} | reuse

    @property
    def scaler_rule(self):
        """Of a ``LossScaler``; None if it is not fp16."""
        if self.precision != "fp16":
            return None
        if self["fp16.loss_scale"]:
            return StaticLossScale(float(self["fp16.loss_scale"]))
        return HysteresisLossScale(
            scale=2.0 ** self["fp16.initial_scale_power"],
            window=self["fp16.loss_scale_window"],
            hysteresis=self["fp16.hysteresis"] if self["zero_optimization.stage"] else 1,
            min_scale=float(self["fp16.min_loss_scale"]),
            consecutive=self["fp16.consecutive_hysteresis"],
        )

    def options_at(self, step):
        """Of the optimizer, before the step of this number; steps that overflow are not counted."""
        lr, momentum = self.course.rate(step), self.course.momentum(step)
        betas = momentum is not None and "betas" in self.options
        return {"lr": lr} | ({"betas": (momentum, 0.99)} if betas else {})  # 0.99: DeepSpeed's, whatever was there
