"""Activations of a block in bfloat16 with dropout, by the ledger: the formulas of Korthikanti et al. 2022, table 2."""

import pytest
import torch
import torch.distributed as dist

import tinydist
from tinydist.model import GPT, GPTConfig
from tinydist.recompute import recompute
from tinydist.tensor_parallel import shard

B, T, D, H = 2, 48, 96, 24
SBH = B * T * D  # the paper's unit, in bytes
SCORES = 5 * H * T / D
NORMS = 2 * 2 * 2 / D  # a mean and a deviation of 2 bytes, for each token, twice: the paper leaves them out

FORMULAS = {  # (sequence, recomputed) -> units on each of t ranks; the block's input among them
    (None, None): lambda t: 10 + 24 / t + SCORES / t + NORMS,
    (None, "selective"): lambda t: 10 + 24 / t + NORMS,
    (None, "full"): lambda t: 2,
    ("save", None): lambda t: 4 + 30 / t + SCORES / t + NORMS / t,
    ("save", "selective"): lambda t: 4 + 30 / t + NORMS / t,
    ("save", "full"): lambda t: 2 / t,
    ("regather", None): lambda t: 34 / t + SCORES / t + NORMS / t,
    ("regather", "selective"): lambda t: 34 / t + NORMS / t,
    ("regather", "full"): lambda t: 2 / t,
    ("overlap", None): lambda t: 4 + 30 / t + SCORES / t + NORMS / t,
}


def block(sequence, recomputed, sizes):
    torch.set_default_dtype(torch.bfloat16)
    model = shard(GPT(sizes), sequence_parallel=sequence)
    if recomputed == "full":
        recompute(model.blocks)
    if recomputed == "selective":
        recompute([each.attention for each in model.blocks], "mix")
    tokens = sizes.context // dist.get_world_size() if sequence else sizes.context
    tinydist.mark("before")
    x = torch.ones(B, tokens, sizes.dim, requires_grad=True)
    y = model.blocks[0](x)
    tinydist.mark("after")
    return x.nbytes, y


def units(ranks, sequence, recomputed, fake, sizes):
    """What backward holds: all that there is after forward, but for what the block gives."""
    run = tinydist.launch(block, ranks, sequence, recomputed, sizes, fake=fake, only=[0] if fake else None)
    before, after = (run.memory[0].at(moment) for moment in ("before", "after"))
    made = {purpose: after[purpose] - before.get(purpose, 0) for purpose in after}
    assert {purpose for purpose, nbytes in made.items() if nbytes} == {"activations"}
    nbytes, _ = run.results[0]
    return (made["activations"] - nbytes) / (B * sizes.context * sizes.dim)


@pytest.mark.parametrize("ranks", [1, 2, 4, 8])
@pytest.mark.parametrize("sequence, recomputed", FORMULAS, ids=str)
def test_a_block_holds_what_the_formula_says(sequence, recomputed, ranks):
    sizes = GPTConfig(context=T, layers=1, heads=H, dim=D, dropout=0.1)
    expected = FORMULAS[sequence, recomputed](ranks)
    assert units(ranks, sequence, recomputed, True, sizes) == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("sequence", [None, "save", "regather"])
def test_real_tensors_hold_the_same(sequence):
    """But for the statistics, which a processor may keep in float32."""
    sizes = GPTConfig(context=T, layers=1, heads=H, dim=D, dropout=0.1)
    _, mean, _ = torch.native_layer_norm(torch.ones(1, 2).bfloat16(), [2], None, None, 1e-5)
    wider = NORMS * (mean.itemsize - 2) / 2 / (2 if sequence else 1)
    assert units(2, sequence, None, False, sizes) == pytest.approx(FORMULAS[sequence, None](2) + wider, rel=1e-12)


def test_the_layer_of_22_billion_parameters():
    """140.7 units whole, 26.3 on each of 8 ranks, 17.6 with tokens cut; 4.25 if attention is recomputed."""
    sizes = GPTConfig(context=2048, layers=1, heads=64, dim=6144, dropout=0.1)
    cases = [(1, None, None), (8, None, None), (8, "regather", None), (8, "regather", "selective")]
    found = [units(ranks, sequence, how, True, sizes) for ranks, sequence, how in cases]
    assert found == pytest.approx([140.67, 26.33, 17.58, 4.25], abs=0.01)
