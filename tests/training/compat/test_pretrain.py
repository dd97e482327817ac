"""A program in Megatron-LM's shape, of June 2023, with its imports changed."""

import json
import subprocess
import sys

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as some
from training.trained import distance

import tinydist
from tinydist.model import GPT, GPTConfig
from tinydist.training.compat.megatron_args import STYLES, num_microbatches, parse, rate_of
from tinydist.training.compat.megatron_calls import build_train_valid_test_datasets
from tinydist.training.compat.pretrain import get_args, get_ltor_masks_and_position_ids

PROGRAM = """
import torch
from functools import partial
from megatron import get_args
from megatron import print_rank_0
from megatron import get_timers
from megatron import get_tokenizer
from megatron.core import tensor_parallel
from megatron.core.enums import ModelType
from megatron.data.gpt_dataset import build_train_valid_test_datasets
from megatron.model import GPTModel
from megatron.training import pretrain
from megatron.utils import get_ltor_masks_and_position_ids
from megatron.utils import average_losses_across_data_parallel_group
from megatron.arguments import core_transformer_config_from_args


def model_provider(pre_process=True, post_process=True):
    config = core_transformer_config_from_args(get_args())
    return GPTModel(
        config, num_tokentypes=0, parallel_output=True, pre_process=pre_process, post_process=post_process
    )


def get_batch(data_iterator):
    args, tokenizer = get_args(), get_tokenizer()
    data = next(data_iterator) if data_iterator is not None else None
    text = tensor_parallel.broadcast_data(["text"], data, torch.int64)["text"].long()
    labels, tokens = text[:, 1:].contiguous(), text[:, :-1].contiguous()
    attention_mask, loss_mask, position_ids = get_ltor_masks_and_position_ids(
        tokens, EOD, args.reset_position_ids, args.reset_attention_mask, args.eod_mask_loss
    )
    return tokens, labels, loss_mask, attention_mask, position_ids


def loss_func(loss_mask, output_tensor):
    losses, loss_mask = output_tensor.float(), loss_mask.view(-1).float()
    loss = torch.sum(losses.view(-1) * loss_mask) / loss_mask.sum()
    averaged_loss = average_losses_across_data_parallel_group([loss])
    return loss, {"lm loss": averaged_loss[0]}


def forward_step(data_iterator, model):
    timers = get_timers()
    timers("batch-generator", log_level=2).start()
    tokens, labels, loss_mask, attention_mask, position_ids = get_batch(data_iterator)
    timers("batch-generator").stop()
    return model(tokens, position_ids, attention_mask, labels=labels), partial(loss_func, loss_mask)


def train_valid_test_datasets_provider(train_val_test_num_samples):
    args = get_args()
    return build_train_valid_test_datasets(
        data_prefix=args.data_path,
        data_impl=args.data_impl,
        splits_string=args.split,
        train_valid_test_num_samples=train_val_test_num_samples,
        seq_length=args.seq_length,
        seed=args.seed,
        skip_warmup=(not args.mmap_warmup),
    )


def main():
    return pretrain(
        train_valid_test_datasets_provider,
        model_provider,
        ModelType.encoder_or_decoder,
        forward_step,
        args_defaults={"tokenizer_type": "GPT2BPETokenizer"},
    )
"""
EOD = 32  # a blank: documents of one word
SIZES = "--num-layers 2 --hidden-size 16 --num-attention-heads 2 --seq-length 8 --max-position-embeddings 8"
WORDS = f"{SIZES} --micro-batch-size 2 --global-batch-size 8 --train-iters 3 --lr 0.01 --lr-decay-style cosine \
--hidden-dropout 0 --attention-dropout 0 --eod-mask-loss --lr-warmup-iters 1 --log-interval 1"
PARALLEL = "--tensor-model-parallel-size {} --pipeline-model-parallel-size {}".format


def changed():
    source = PROGRAM
    for line in PROGRAM.splitlines():
        if line.startswith("from megatron"):
            source = source.replace(line, f"from tinydist.training.compat.pretrain import{line.split('import')[1]}")
    return source


def program():
    module = {"EOD": EOD}
    exec(changed(), module)
    return module["main"]


def steps(ranks, words):
    results = tinydist.launch(program(), ranks, observe=False).results
    assert all(each == results[0] for each in results)
    return [step[:2] for step in results[0]]


@pytest.fixture
def words(monkeypatch):
    return lambda *more: monkeypatch.setattr(sys, "argv", ["pretrain_gpt.py", *" ".join([WORDS, *more]).split()])


def alone(micro_batches=4):
    """In plain torch: the mean over microbatches of means over what is not masked."""
    torch.manual_seed(1234)
    module = GPT(GPTConfig(context=8, layers=2, heads=2, dim=16))
    train, *_ = build_train_valid_test_datasets(None, "969, 30, 1", (24, 0, 0), 8, 1234)
    decayed = [p for p in module.parameters() if p.ndim > 1]
    others = {"params": [p for p in module.parameters() if p.ndim < 2], "weight_decay": 0.0}
    optimizer = torch.optim.AdamW([{"params": decayed}, others], lr=0.01, weight_decay=0.01)
    found = []
    for step, rate in enumerate([0.0, 0.01, 0.005]):
        losses = []
        for micro in range(micro_batches):
            text = torch.stack([train[step * 8 + micro * 2 + row]["text"] for row in range(2)])
            mask = (text[:, :-1] != EOD).float()
            each = F.cross_entropy(module(text[:, :-1]).flatten(0, 1), text[:, 1:].flatten(), reduction="none")
            losses.append((each * mask.flatten()).sum() / mask.sum())
        loss = sum(losses) / micro_batches
        loss.backward()
        norm = torch.nn.utils.clip_grad_norm_(module.parameters(), 1.0)
        for group in optimizer.param_groups:
            group["lr"] = rate
        optimizer.step()
        optimizer.zero_grad()
        found.append((loss.item(), norm.item()))
    return found


@pytest.mark.parametrize(
    "ranks, more",
    [
        (1, ""),
        (2, "--use-distributed-optimizer"),
        (4, PARALLEL(2, 2)),
        (8, PARALLEL(2, 2) + " --sequence-parallel --recompute-activations"),
        (4, PARALLEL(1, 2) + " --num-layers-per-virtual-pipeline-stage 1 --num-layers 4"),
    ],
)
def test_the_program_runs_on_any_mesh_to_the_losses_of_one_process(words, ranks, more):
    words(more)
    if "virtual" in more:
        words(more, "--split 1,0,0")
        assert len(steps(ranks, more)) == 3
    else:
        assert max(distance(steps(ranks, more), alone())) <= 1e-5


def test_experts_are_shared_to_the_losses_of_one_process(words):
    words("--num-experts 4 --moe-z-loss-coeff 0.1")
    expected = steps(1, "")
    words("--num-experts 4 --moe-z-loss-coeff 0.1 --expert-model-parallel-size 2")
    assert max(distance(steps(2, ""), expected)) <= 1e-5


def test_it_goes_on_from_what_it_saved(words, tmp_path):
    words(f"--save {tmp_path}/run")
    unbroken = steps(2, "")
    words(f"--save {tmp_path}/other --train-iters 2 --lr-decay-iters 3")
    first = steps(2, "")
    words(f"--load {tmp_path}/other")
    assert first + steps(2, "") == unbroken


def test_it_validates(words, capsys):
    words("--eval-interval 3 --eval-iters 2 --split 1,1,0")
    steps(2, "")
    assert "iteration 3: validation loss 5." in capsys.readouterr().out


REFUSED = {
    "--num-layer 3": "pretrain: unrecognized arguments: --num-layer 3; did you mean --num-layers",
    "--tensor-model-parallel-size 3": "pretrain: world size (2) must be divisible by tensor (3) x pipeline (1)",
    "--global-batch-size 6": "pretrain: global batch size (6) must be divisible by micro batch size (2) x",
    "--expert-model-parallel-size 2": "parallelize: ep (2) ranks share the experts, but the model has none",
    "--expert-model-parallel-size 3 --num-experts 3": "Plan: dp (2) x cp (1) must be divisible by ep (3)",
    "--moe-router-topk 1": "pretrain: --moe-router-topk requires --num-experts",
    "--context-parallel-size 2": "pretrain: --context-parallel-size(2) must be 1: a program brings whole sequences",
    "--fp16 --bf16": "pretrain: --fp16 and --bf16 are mutually exclusive",
    "--reset-position-ids": "pretrain: --reset-position-ids and --reset-attention-mask: not supported, attention is",
    "--lr-decay-style wsd": "pretrain: --lr-decay-style must be one of constant, linear, cosine, inverse-square-root",
}


@pytest.mark.parametrize("more", REFUSED)
def test_arguments_of_which_nothing_can_be_made_are_refused(words, more):
    words(more)
    with pytest.raises(ValueError) as error:
        steps(2, "")
    assert str(error.value).startswith(REFUSED[more])


def test_arguments_are_there_once_pretrain_has_read_them():
    with pytest.raises(RuntimeError, match=r"^get_args\(\) called before pretrain\(\) parsed the arguments"):
        tinydist.launch(get_args, 1, observe=False)


# Numbers of Megatron-LM's own functions.


def test_the_number_of_microbatches():
    assert [num_microbatches(*sizes) for sizes in [(32, 4, 2), (8, 8, 1), (1536, 1, 64)]] == [4, 1, 24]
    with pytest.raises(
        ValueError,
        match=r"^pretrain: global batch size \(30\) must be divisible by micro batch size \(4\) x",
    ):
        num_microbatches(30, 4, 2)


TOKENS = torch.tensor([[5, 0, 7, 8, 0, 9], [1, 2, 3, 4, 5, 6]])


def test_masks_and_positions_of_documents():
    unseen, mask, positions = get_ltor_masks_and_position_ids(TOKENS, 0, True, True, True)
    assert mask.tolist() == [[1, 0, 1, 1, 0, 1], [1] * 6]
    assert positions.tolist() == [[0, 1, 0, 1, 2, 0], [0, 1, 2, 3, 4, 5]]
    seen = [[1], [1, 1], [0, 0, 1], [0, 0, 1, 1], [0, 0, 1, 1, 1], [0, 0, 0, 0, 0, 1]]
    assert [row[: place + 1] for place, row in enumerate((~unseen[0, 0]).long().tolist())] == seen
    assert torch.equal(unseen[1, 0], torch.ones(6, 6).triu(1).bool())


def test_masks_and_positions_of_one_row_of_tokens():
    unseen, mask, positions = get_ltor_masks_and_position_ids(TOKENS, 0, False, False, False)
    assert list(unseen.shape) == [1, 1, 6, 6] and torch.equal(unseen[0, 0], torch.ones(6, 6).triu(1).bool())
    assert mask.min() == 1 and positions.tolist() == [list(range(6))] * 2


@pytest.mark.parametrize(
    "style, rates",
    [
        ("constant", [0.0, 0.2, 0.4, 0.4, 0.4, 0.4]),
        ("linear", [0.0, 0.2, 0.4, 0.325, 0.1, 0.1]),
        ("cosine", [0.0, 0.2, 0.4, 0.35606601717798213, 0.1, 0.1]),
        ("inverse-square-root", [0.0, 0.2, 0.4, 0.32659863237109044, 0.23094010767585033, 0.1]),
    ],
)
def test_rates_rise_and_fall_as_megatrons(style, rates):
    words = f"{WORDS} --lr 0.4 --min-lr 0.1 --lr-warmup-iters 2 --lr-decay-iters 6 --lr-decay-style {style}".split()

    def program():
        args = parse(words=words)
        return [rate_of(args, step) for step in (0, 1, 2, 3, 6, 7)]

    assert tinydist.launch(program, 1, observe=False).results[0] == pytest.approx(rates)


@pytest.mark.exhaustive
def test_the_program_runs_under_torchrun_to_the_losses_of_simulated_ranks(words, tmp_path):
    script, more = tmp_path / "pretrain_gpt.py", "--use-distributed-optimizer"
    script.write_text(f"EOD = {EOD}\n{changed()}\nprint([float(step.loss) for step in main()], flush=True)\n")
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", script]
    done = subprocess.run([*torchrun, *f"{WORDS} {more}".split()], capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stdout + done.stderr
    words(more)
    said = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("[")]
    assert said == [pytest.approx([loss for loss, _ in steps(2, more)], abs=1e-5)] * 2


# Megatron-core itself, where it is installed.


@given(
    some.integers(0, 3), some.lists(some.integers(0, 2), min_size=1, max_size=9), some.tuples(*[some.booleans()] * 3)
)
def test_masks_and_positions_are_those_of_megatron_core(eod, row, asked):
    theirs = pytest.importorskip("megatron.core.datasets.gpt_dataset")._get_ltor_masks_and_position_ids
    row = torch.tensor(row)
    unseen, mask, positions = theirs(row, eod, *asked, True)
    ours = get_ltor_masks_and_position_ids(row[None], eod, *asked)
    assert all(torch.equal(a, b) for a, b in zip(ours, (unseen[None], mask[None], positions[None])))


@given(
    some.integers(1, 5),
    some.integers(1, 3),
    some.integers(1, 3),
    some.integers(0, 5),
    some.integers(1, 99),
    some.data(),
)
def test_numbers_of_microbatches_are_those_of_megatron_core(micro, dp, increments, start, samples, data):
    theirs = pytest.importorskip("megatron.core.num_microbatches_calculator")
    unit = micro * dp
    first, last = unit * (start + 1), unit * (start + 1 + increments)
    calculator = theirs.RampupBatchsizeNumMicroBatchesCalculator(last, micro, dp, False, 1, first, unit, samples)
    consumed = data.draw(some.integers(0, 120))
    calculator.update(consumed, True)
    assert num_microbatches(calculator.get_current_global_batch_size(), micro, dp) == calculator.get()


@pytest.mark.parametrize("style", STYLES)
def test_rates_are_those_of_megatron_core(style):
    theirs = pytest.importorskip("megatron.core.optimizer_param_scheduler").OptimizerParamScheduler
    more = f"{WORDS} --min-lr 0.001 --lr-warmup-iters 3 --lr-decay-iters 11 --lr-decay-style {style}".split()
    args = tinydist.launch(lambda: parse(words=more), 1, observe=False).results[0]
    optimizer = torch.optim.SGD([torch.zeros(1)], lr=1.0)
    decay = (0.0, 0.0, 88, "constant", False)
    scheduler = theirs(optimizer, 0.0, 0.01, 0.001, 24, 88, style, *decay)
    for step in range(15):
        assert optimizer.param_groups[0]["lr"] == rate_of(args, step)
        scheduler.step(8)
