"""Random numbers: the same where ranks compute alike, different where the work is dealt out."""

import pytest
import torch
from tensor_parallel.wholes import gradient
from tiny_training import assert_every_rank_has
from torch import nn

import tinydist
from tinydist.model import GPT, GPTConfig
from tinydist.recompute import recompute
from tinydist.tensor_parallel import RNGTracker, ShardedDropout, gathered, shard

CONFIG = GPTConfig(vocab_size=24, context=24, layers=1, heads=8, dim=48, dropout=0.3)
TOKENS = torch.arange(24)[None]


def test_streams_of_a_tracker():
    """Own numbers differ from rank to rank and from time to time; the common ones go on as if nobody had been away."""

    def program():
        tracker, seen = RNGTracker(), []
        for _ in range(2):
            common = torch.rand(3)
            with tracker.fork():
                seen += [torch.rand(3), torch.rand(3)]
        return torch.stack(seen), torch.stack([common, torch.rand(3)])

    own, common = zip(*tinydist.launch(program, 4).results)
    assert all(torch.equal(each, common[0]) for each in common)
    assert len(torch.stack(own).flatten().unique()) == 4 * 4 * 3


def test_whoever_restores_the_common_stream_restores_both():
    def program():
        tracker, state = RNGTracker(), torch.get_rng_state()
        with tracker.fork():
            first = torch.rand(3)
        torch.set_rng_state(state)
        with tracker.fork():
            return torch.equal(first, torch.rand(3))

    assert tinydist.launch(program, 2).results == [True, True]


def dropped(model):
    """What each dropout of the model leaves of ones, by name."""
    return {
        name: module(torch.ones(1000))
        for name, module in model.named_modules()
        if isinstance(module, nn.Dropout | ShardedDropout) and not name.endswith(".dropout.dropout")
    }


@pytest.mark.parametrize("sequence", [None, "save"])
def test_which_dropouts_are_alike(sequence):
    """Those of attention's weights differ, which are of other heads. The others do where tokens are others."""

    def program():
        model = shard(GPT(CONFIG), sequence_parallel=sequence)
        for hooked in model.modules():
            hooked._forward_pre_hooks.clear()  # which would cut the ones as tokens
        return dropped(model)

    one, two, three = tinydist.launch(program, 3 + 1, observe=False).results[:3]
    for name in ("dropout", "blocks.0.dropout", "blocks.0.attention.dropout"):
        alike = sequence is None and "attention" not in name
        assert torch.equal(one[name], two[name]) == torch.equal(two[name], three[name]) == alike, name
        assert 0.6 < one[name].count_nonzero() / 1000 < 0.8


def test_without_cut_tokens_activations_and_gradients_of_copies_stay_the_same():
    def program():
        model = shard(GPT(CONFIG))
        model.loss(TOKENS, TOKENS).backward()
        copies = ("position.weight", "blocks.0.mlp_norm.weight", "blocks.0.attention.out.bias")
        return torch.rand(1), [model.get_parameter(name).grad for name in copies]

    first, *others = tinydist.launch(program, 4, observe=False).results
    for other in others:
        torch.testing.assert_close(first, other, rtol=0, atol=0)


def test_evaluation_drops_nothing():
    def program(sequence):
        model = shard(GPT(CONFIG), sequence_parallel=sequence).eval()
        return model.loss(TOKENS, TOKENS).detach()

    torch.manual_seed(0)
    expected = GPT(CONFIG).eval().loss(TOKENS, TOKENS).detach()
    for sequence in (None, "regather"):
        assert_every_rank_has(expected, tinydist.launch(program, 3 - 1, sequence, observe=False).results)


@pytest.mark.parametrize("which", ["full", "selective"])
@pytest.mark.parametrize("sequence", [None, "regather"])
def test_recomputed_masks_are_the_same(which, sequence):
    def program(recomputed):
        model = shard(GPT(CONFIG), sequence_parallel=sequence)
        if recomputed:
            full = which == "full"
            recompute(model.blocks if full else [model.blocks[0].attention], "forward" if full else "mix")
        model.loss(TOKENS, TOKENS).backward()
        return gathered(model, of=gradient)

    expected, found = (tinydist.launch(program, 4, again, observe=False).results for again in (False, True))
    assert_every_rank_has(expected[0], found, atol=0)


def test_on_processes_it_is_the_same():
    def program():
        found = []
        for sequence in ("regather", "overlap"):
            model = shard(GPT(CONFIG), sequence_parallel=sequence)
            found += [model.loss(TOKENS, TOKENS)]
            found[-1].backward()
            found += gathered(model, of=gradient).values()
        return [tensor.detach() for tensor in found]

    expected = tinydist.launch(program, 2, observe=False).results[0]
    assert_every_rank_has(expected, tinydist.launch(program, 2, backend="gloo").results)
