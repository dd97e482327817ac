"""Megatron-LM's ``pretrain`` on this engine: a pretrain_gpt.py runs after changing its imports.

    model_provider(pre_process, post_process)    the whole GPT: parallelize cuts it
    forward_step(data_iterator, model)           of a stage and a microbatch: get_batch, model(...), what makes a loss
    model(tokens, positions, mask, labels=...)   what the stage makes of its input; on the last one, a loss per token
    loss_func(loss_mask, output)                 a microbatch's loss, and what is to be logged

The worker of the pipeline calls forward_step where it would call the stage. Each microbatch's loss counts 1/M, and each
data rank's 1/dp: a mean over unlike numbers of tokens is a mean of means, as in Megatron-LM.
Source: Megatron-LM of June 2023, pretrain_gpt.py, megatron/training.py.
"""

import torch
from torch import nn

from ...torch_internals import device_of_group
from ..checkpoint import save
from ..expert_options import load_balance_of
from ..loop import is_due, resume
from ..mesh import data_rank, place_in
from ..parallelize import parallelize
from .initialize import init_distributed
from .megatron_args import optimizer_of, parse, plan_of, rate_of
from .megatron_calls import (
    GPTModel,
    ModelType,
    average_losses_across_data_parallel_group,
    build_train_valid_test_datasets,
    core_transformer_config_from_args,
    get_args,
    get_ltor_masks_and_position_ids,
    get_timers,
    get_tokenizer,
    iterator,
    of_rank,
    print_rank_0,
    tensor_parallel,
)

__all__ = [
    "GPTModel",
    "ModelType",
    "average_losses_across_data_parallel_group",
    "build_train_valid_test_datasets",
    "core_transformer_config_from_args",
    "get_args",
    "get_ltor_masks_and_position_ids",
    "get_timers",
    "get_tokenizer",
    "pretrain",
    "print_rank_0",
    "tensor_parallel",
]


class Asking(nn.Module):
    """A stage that runs by way of the program's forward_step."""

    def __init__(self, stage, number, program):
        super().__init__()
        self.stage, self.number, self.program = stage, number, program

    def forward(self, x):
        output, self.program.loss_func = self.program.forward_step(self.program.iterators[self.number], self._model(x))
        return output

    def _model(self, x):
        """What the program takes for a model, in this microbatch."""

        def model(tokens, position_ids=None, attention_mask=None, labels=None):
            output = self.stage(x if self.number else tokens)
            is_last = self.number == self.program.engine.plan.stages - 1
            return self.program.losses(output, labels) if is_last and labels is not None else output

        return model


class Program:
    """A program's functions, on an engine."""

    def __init__(self, engine, forward_step):
        self.engine, self.forward_step, self.iterators, self.logged = engine, forward_step, {}, []
        self.cross_entropy, engine.cross_entropy = engine.cross_entropy, self._loss
        engine.stages = {number: Asking(stage, number, self) for number, stage in engine.stages.items()}

    def losses(self, logits, labels):
        """[B, T], in fp32."""
        flat = self.cross_entropy(logits.flatten(0, 1).float(), labels.flatten(), reduction="none")
        return flat.view_as(labels)

    def _loss(self, losses, _):
        loss, shown = self.loss_func(losses)
        self.logged.append({name: float(value) for name, value in shown.items()})
        return loss

    def read(self, dataset, consumed=0):
        """For each stage of this rank an iterator, as each asks once a microbatch; None but for tensor rank 0."""
        args, place = get_args(), place_in(self.engine.mesh)
        rank, dp = data_rank(self.engine.plan, place), args.data_parallel_size
        for number in self.engine.stages:
            read = iterator(dataset, args.micro_batch_size, rank, dp, consumed) if place.tp == 0 else None
            self.iterators[number] = read

    def shape(self):
        """[rows, tokens] of a data rank: the program brings what is in it."""
        args = get_args()
        return torch.zeros(args.num_microbatches * args.micro_batch_size, args.seq_length, dtype=torch.int64)


def pretrain(
    train_valid_test_dataset_provider,
    model_provider,
    model_type,
    forward_step_func,
    process_non_loss_data_func=None,
    extra_args_provider=None,
    args_defaults=None,
):
    """Train ``--train-iters`` steps, those of the checkpoint in ``--load`` among them. Returns a ``Step`` for each.

    On the ranks of a launch, under torchrun, or in this process alone. Raises ``ValueError`` for arguments of which
    nothing can be made.
    """
    init_distributed()
    of_rank.args = args = parse(extra_args_provider, args_defaults)
    torch.manual_seed(args.seed)
    made, options = optimizer_of(args)
    model = model_provider(pre_process=True, post_process=True).to(device_of_group())
    balance = load_balance_of(args)
    of_rank.engine = engine = parallelize(model, plan_of(args), made, groups_of(model), load_balance=balance, **options)
    program = Program(engine, forward_step_func)
    begin = args.iteration = resume(engine, args.load)
    evaluated = (args.train_iters // args.eval_interval + 1) * args.eval_iters
    batches = (args.train_iters, evaluated, args.eval_iters)
    train, valid, _ = train_valid_test_dataset_provider([number * args.global_batch_size for number in batches])
    program.read(train, begin * args.global_batch_size)
    return [step_of(program, number, train, valid) for number in range(begin, args.train_iters)]


def groups_of(model):
    """As Megatron-LM: biases and norms do not decay."""
    parameters = list(model.parameters())
    others = {"params": [each for each in parameters if each.ndim < 2], "weight_decay": 0.0}
    return [{"params": [each for each in parameters if each.ndim > 1]}, others]


def step_of(program, number, train, valid):
    args, engine, shape = get_args(), program.engine, program.shape()
    program.logged.clear()
    step = engine.step(shape, shape, lr=rate_of(args, engine.steps))
    if is_due(number, args.log_interval):
        print_rank_0(f"iteration {number + 1}/{args.train_iters}: loss {step.loss:.6E}, grad norm {step.norm}")
    if valid is not None and is_due(number, args.eval_interval):
        before, program.iterators = program.iterators, {}
        program.read(valid)
        losses = [engine.evaluate(shape, shape) for _ in range(args.eval_iters)]
        print_rank_0(f"iteration {number + 1}: validation loss {sum(losses) / len(losses):.6E}")
        program.iterators = before
    if args.save and (is_due(number, args.save_interval) or number + 1 == args.train_iters):
        save(engine, args.save, step=number + 1)
    return step
