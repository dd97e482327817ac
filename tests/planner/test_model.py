"""Parameters and FLOPs: those that were published, those of built models, those of the papers' formulas."""

from dataclasses import replace

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from tinydist.attention import Decoder, DecoderConfig
from tinydist.model import GPT, GPTConfig
from tinydist.planner import MODELS, Model, find_model
from tinydist.planner.presets import SC_21_SIZES

PUBLISHED = {  # of checkpoints
    "GPT-2": 124_439_808,
    "GPT-2 XL": 1_557_611_200,
    "Llama 2 7B": 6_738_415_616,
    "Llama 2 70B": 68_976_648_192,
    "Llama 3 8B": 8_030_261_248,
    "Llama 3 70B": 70_553_706_496,
    "Llama 3 405B": 405_853_388_800,
    "Mixtral 8x7B": 46_702_792_704,
    "BLOOM 176B": 176_247_271_424,
    "DeepSeek-V3": 671_026_419_200,
}
SMALL = GPTConfig(vocab_size=96, context=16, layers=3, heads=4, dim=32, dropout=0.1)
GROUPED = DecoderConfig(vocab_size=96, layers=3, heads=4, kv_heads=2, dim=32)


@pytest.mark.parametrize("name", PUBLISHED)
def test_parameters_are_those_of_the_checkpoint(name):
    assert MODELS[name].parameters == PUBLISHED[name]


def test_of_a_mixture_a_token_meets_a_part():
    assert find_model("mixtral-8x7b").active == pytest.approx(12.9e9, rel=0.01)
    assert find_model("DeepSeek-V3").active == pytest.approx(37e9, rel=0.02)
    assert find_model("GPT-2").active == find_model("GPT-2").parameters


def gpt(config):
    sizes = config.layers, config.dim, config.heads, config.vocab_size, config.context
    return Model("a GPT", *sizes, dropout=config.dropout)


def like_llama(config, tokens):
    kinds = dict(gated=True, biases=False, tied=False, positions="rotary", norm="rms", kv_heads=config.kv_heads)
    return Model("a Llama", config.layers, config.dim, config.heads, config.vocab_size, tokens, **kinds)


@pytest.mark.parametrize("built, model", [(GPT(SMALL), gpt(SMALL)), (Decoder(GROUPED), like_llama(GROUPED, 16))])
def test_a_built_model_has_as_many_parameters_and_flops(built, model):
    assert sum(p.numel() for p in built.parameters()) == model.parameters
    tokens = torch.zeros(2, model.tokens, dtype=torch.long)
    with FlopCounterMode(display=False) as counter:
        built.loss(tokens, tokens).backward()
    assert counter.get_total_flops() == model.flops(2)


@pytest.mark.parametrize("name", SC_21_SIZES)
def test_formulas_of_megatron_lm(name):
    """SC'21, equations 2 and 3; Korthikanti et al., appendix A: of the model, and with attention computed again."""
    model = find_model(f"Megatron {name}")
    L, h, V, s, B = model.layers, model.width, model.vocabulary, model.tokens, 8
    parameters = 12 * L * h**2 * (1 + 13 / (12 * h) + (V + s) / (12 * L * h))
    assert model.parameters == pytest.approx(parameters + 2 * h, rel=1e-12)
    full = 96 * B * s * L * h**2 * (1 + s / (6 * h) + V / (16 * L * h))
    assert model.flops(B, "full") == pytest.approx(full, rel=1e-12)
    assert model.flops(B) == pytest.approx(72 * B * L * s * h**2 * (1 + s / (6 * h) + V / (12 * h * L)), rel=1e-12)
    selective = 72 * B * L * s * h**2 * (1 + s / (6 * h) + V / (12 * h * L)) + 4 * B * L * s**2 * h
    assert model.flops(B, "selective") == pytest.approx(selective, rel=1e-12)


def test_every_preset_has_a_source():
    assert all(name == model.name and len(model.source) > 20 for name, model in MODELS.items())


def test_names_are_found_as_they_are_written_elsewhere():
    assert find_model("llama-3-70b") is MODELS["Llama 3 70B"]
    with pytest.raises(ValueError, match="unknown model 'llama-9'; available: 'GPT-2'"):
        find_model("llama-9")


def test_heads_that_do_not_divide():
    with pytest.raises(ValueError, match=r"width \(100\) must be divisible by heads \(3\)"):
        Model("odd", 1, 100, 3, 10, 10)
    with pytest.raises(ValueError, match=r"heads \(4\) must be divisible by kv_heads \(3\)"):
        Model("odd", 1, 64, 4, 10, 10, kv_heads=3)


def test_layers_with_windows_compute_less():
    """Of each layer T x w of the scores, and of those that a causal mask leaves the ones that were counted here."""
    full = Model("every third layer sees all", 6, 64, 4, 96, 32)
    model = replace(full, windows=(8, 8, None))
    assert full.flops(1) - model.flops(1) == 3 * 4 * 32 * 64 * 4 * (32 - 8)  # four layers, three passes
    seen = [sum(min(query + 1, window) for query in range(32)) for window in (8, 8, 32, 8, 8, 32)]
    assert model.pairs == pytest.approx(sum(seen) / 6 / sum(range(33)), rel=1 / 16)  # without the diagonal's half
    assert replace(full, windows=(32,)).pairs == replace(full, windows=(None, 100)).pairs == full.pairs == 1
    assert model.parameters == full.parameters
