"""Layouts: counts of blocks by formula, DeepSpeed 0.19.6's own, and how far a layer carries."""

import hashlib
import math
import os
import random
from importlib import util

import pytest
import torch

from tinydist.attention import sparse_layouts
from tinydist.attention.sparse_layouts import bigbird, dilated, fixed, hops, longformer, strided, variable, window

SIZES = (8, 16, 32, 64)  # blocks

# DeepSpeed 0.19.6, make_layout of each configuration with its defaults, blocks set (run once with the wheel from PyPI).
COUNTS = {
    "fixed": (lambda n: fixed(n), (40, 112, 352, 1216)),
    "longformer": (lambda n: longformer(n), (34, 74, 154, 314)),
    "variable": (lambda n: variable(n), (36, 76, 156, 316)),
    "window": (lambda n: window(n, causal=True), (15, 31, 63, 127)),
}


@pytest.mark.parametrize("name", COUNTS)
def test_blocks_of_deepspeeds_defaults(name):
    layout, counts = COUNTS[name]
    assert tuple(int(layout(n).sum()) for n in SIZES) == counts


def test_which_layouts_stay_quadratic():
    """Of twice the blocks: linear layouts have at most about twice as many, ``fixed`` tends to four times."""
    n = 512
    growth = {
        "window": window(2 * n).sum() / window(n).sum(),
        "longformer": longformer(2 * n).sum() / longformer(n).sum(),
        "bigbird": bigbird(2 * n).sum() / bigbird(n).sum(),
        "fixed": fixed(2 * n).sum() / fixed(n).sum(),
    }
    assert all(growth[name] < 2.01 for name in ("window", "longformer", "bigbird"))
    assert 3.95 < growth["fixed"] < 4
    roots = [int(strided(size, math.isqrt(size)).sum()) / size**1.5 for size in (256, 1024, 4096)]
    assert min(roots) > 2 and max(roots) < 3


def test_dilated_sees_as_many_blocks_farther_away():
    assert dilated(9, 5, 3)[4].nonzero().flatten().tolist() == [1, 4, 7]
    assert torch.equal(dilated(9, 5, 1), window(9, 5))
    assert int(dilated(100, 5, 7)[50].sum()) == int(window(100, 5)[50].sum()) == 5


CASES = [
    *((window, dict(width=w)) for w in (1, 3, 4)),
    *((longformer, dict(width=3, globals=g)) for g in ((0,), (1, 3), ())),
    *((bigbird, dict(width=w, globals=g, random=r)) for w, g, r in ((3, 1, 1), (1, 0, 1), (5, 2, 0))),
    *((fixed, dict(local=a, summary=b, pattern=p)) for a, b, p in ((4, 1, 0), (4, 1, 3), (4, 2, 1), (3, 1, 1))),
    *((variable, dict(windows=w, globals=g, random=r)) for w, g, r in (((4,), (0,), 0), ((1, 2, 3), (1, 3), 2))),
]


def names(case):
    function, options = case
    return f"{function.__name__} {options}"


def layouts_of(function, options):
    """For 5 to 17 blocks, both ways; horizontal ones too."""
    drawing = {"rng": random.Random(7)} if "random" in options else {}
    for n in range(5, 18):
        for causal in (False, True):
            if drawing:
                drawing["rng"].seed(n)
            yield n, causal, function(n, causal=causal, **options, **drawing)


def test_no_layout_has_changed():
    """The digest is of layouts that all were equal to DeepSpeed's (below)."""
    digest = hashlib.sha256()
    for function, options in CASES:
        for _, _, layout in layouts_of(function, options):
            digest.update(bytes(layout.flatten().tolist()))
    assert digest.hexdigest()[:16] == "ce888186cfbba90e"


@pytest.mark.skipif("DEEPSPEED_0_19_6" not in os.environ, reason="DEEPSPEED_0_19_6: where its sources are unpacked")
@pytest.mark.parametrize("case", CASES, ids=names)
def test_equal_to_deepspeeds(case):
    """Its causal layouts have blocks above the diagonal where blocks are random or summaries are wider than one: there
    they are ours below it.
    """
    path = os.path.join(os.environ["DEEPSPEED_0_19_6"], "deepspeed/ops/sparse_attention/sparsity_config.py")
    spec = util.spec_from_file_location("sparsity_config", path)
    configs = util.module_from_spec(spec)
    spec.loader.exec_module(configs)
    function, options = case
    pattern = options.get("pattern", 0)
    theirs = {
        "width": "num_sliding_window_blocks", "local": "num_local_blocks", "summary": "num_global_blocks",
        "random": "num_random_blocks", "windows": "local_window_blocks",
        "globals": "num_global_blocks" if function is bigbird else "global_block_indices",
    }  # fmt: skip
    given = {theirs[name]: value for name, value in options.items() if name != "pattern"}
    config = {
        window: configs.LocalSlidingWindowSparsityConfig, longformer: configs.BSLongformerSparsityConfig,
        bigbird: configs.BigBirdSparsityConfig, fixed: configs.FixedSparsityConfig,
        variable: configs.VariableSparsityConfig,
    }[function]  # fmt: skip
    if function is fixed:
        given |= dict(different_layout_per_head=True, num_different_global_patterns=pattern + 1)
    for n, causal, ours in layouts_of(function, options):
        random.seed(n)
        made = config(pattern + 1, attention="unidirectional" if causal else "bidirectional", **given)
        layout = made.make_layout(16 * n)[pattern].bool()
        assert torch.equal(layout.tril() if causal else layout, ours), n


def test_hops():
    """A window of 3 carries one block a layer, a global block anything in two; what is never reached is inf."""
    assert hops(window(9))[8, 0] == 8
    assert hops(window(9, 5, causal=True))[8, 0] == 4
    assert hops(window(9, causal=True))[0, 8] == math.inf
    assert hops(longformer(9)).max() == 2
    assert hops(fixed(9, 3, causal=True))[8].tolist() == [2, 2, 1, 2, 2, 1, 1, 1, 0]
    heads = torch.stack([window(9, 1), strided(9, 4)])
    assert torch.equal(hops(heads), hops(strided(9, 4)))
    by_powers = torch.linalg.matrix_power(bigbird(12, 1, 0, 1).double() + torch.eye(12).double(), 3) > 0
    assert torch.equal(hops(bigbird(12, 1, 0, 1)) <= 3, by_powers)


def test_errors():
    with pytest.raises(ValueError, match=r"fixed: summary \(3\) must divide local \(4\)"):
        fixed(8, 4, 3)
    with pytest.raises(ValueError, match=r"fixed: .* and pattern \(2\) be less than the quotient"):
        fixed(8, 4, 2, 2)
    with pytest.raises(ValueError, match=r"hops: layout must be bool .*, got torch\.float32"):
        hops(torch.ones(3, 3))
    for name in ("window", "dilated", "longformer", "bigbird", "fixed", "variable"):
        with pytest.raises(ValueError, match=f"{name}: n must be an integer from 1 to 65536, got 0"):
            getattr(sparse_layouts, name)(0)
