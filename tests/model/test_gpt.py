import math
from dataclasses import replace

import pytest
import torch
from torch import nn

from tinydist.model import GPT, GPTConfig, batch
from tinydist.model.gpt import Dropout

CONFIG = GPTConfig(vocab_size=11, context=8, layers=2, heads=2, dim=12)


@pytest.fixture
def model():
    torch.manual_seed(0)
    return GPT(CONFIG).double()


def test_attention_equals_torch_multihead_attention(model):
    ours, theirs = model.blocks[0].attention, nn.MultiheadAttention(12, 2, batch_first=True).double()
    theirs.load_state_dict(
        {
            "in_proj_weight": ours.qkv.weight,
            "in_proj_bias": ours.qkv.bias,
            "out_proj.weight": ours.out.weight,
            "out_proj.bias": ours.out.bias,
        }
    )
    x = torch.randn(3, 7, 12, dtype=torch.double)
    mask = nn.Transformer.generate_square_subsequent_mask(7, dtype=torch.double)
    expected, _ = theirs(x, x, x, attn_mask=mask, is_causal=True)
    torch.testing.assert_close(ours(x), expected, rtol=0, atol=1e-12)


def test_a_token_does_not_see_those_after_it(model):
    tokens = torch.arange(8)[None]
    changed = tokens.clone()
    changed[0, 5:] = 0
    assert torch.equal(model(tokens)[:, :5], model(changed)[:, :5])
    assert not torch.equal(model(tokens)[:, 5:], model(changed)[:, 5:])


def test_parameter_count_in_closed_form(model):
    V, T, L, D = 11, 8, 2, 12
    assert sum(p.numel() for p in model.parameters()) == V * D + T * D + L * (12 * D * D + 13 * D) + 2 * D


def test_embedding_and_head_are_one_parameter(model):
    assert model.head.weight is model.embedding.weight


def test_first_loss_is_that_of_guessing():
    torch.manual_seed(0)
    assert abs(GPT().loss(*batch(0, 16)).item() - math.log(256)) < 0.2


def test_loss_is_the_mean_over_all_tokens(model):
    tokens, targets = torch.randint(11, (2, 3, 8)).unbind()
    chance = torch.log_softmax(model(tokens), dim=-1)
    expected = -torch.stack([chance[b, t, targets[b, t]] for b in range(3) for t in range(8)]).mean()
    torch.testing.assert_close(model.loss(tokens, targets), expected)


def test_with_dropout_but_in_evaluation_it_is_the_same_model(model):
    """Attention is then computed in plain products."""
    dropping = GPT(replace(CONFIG, dropout=0.5)).double().eval()
    dropping.load_state_dict(model.state_dict())
    tokens = torch.arange(8)[None]
    torch.testing.assert_close(dropping(tokens), model(tokens), rtol=0, atol=1e-12)


def test_dropout_keeps_the_mean_and_a_mask_of_one_byte_a_number():
    x = torch.ones(10_000, dtype=torch.bfloat16, requires_grad=True)
    y = Dropout(0.2)(x)
    assert set(y.tolist()) == {0.0, 1.25} and 0.78 < y.count_nonzero() / 10_000 < 0.82
    assert y.grad_fn._saved_result1.dtype == torch.bool


def test_errors_show_the_numbers(model):
    with pytest.raises(ValueError, match="a sequence of 9 tokens exceeds the context length 8"):
        model(torch.zeros(1, 9, dtype=torch.long))
    with pytest.raises(ValueError, match=r"dim \(10\) must be divisible by heads \(4\)"):
        GPTConfig(dim=10, heads=4)
    with pytest.raises(ValueError, match="GPTConfig: dropout must be a number from 0 to 1, got 2"):
        GPTConfig(dropout=2)
