"""The exercises on three axes: their solutions are Megatron-LM's groups, one process's norm, and the mesh's."""

import pytest
import torch

from tinydist.syllabus.registry import find

MEGATRON = [  # megatron-core 0.16.1, RankGenerator(...).get_ranks(along)
    (dict(tp=2, dp=2, pp=2), "tp-cp-ep-dp-pp", "tp", [[0, 1], [2, 3], [4, 5], [6, 7]]),
    (dict(tp=2, dp=2, pp=2), "tp-cp-ep-dp-pp", "dp", [[0, 2], [1, 3], [4, 6], [5, 7]]),
    (dict(tp=2, dp=2, pp=2), "tp-cp-ep-dp-pp", "pp", [[0, 4], [1, 5], [2, 6], [3, 7]]),
    (dict(tp=2, dp=2, pp=2), "tp-cp-ep-dp-pp", "tp-pp", [[0, 1, 4, 5], [2, 3, 6, 7]]),
    (dict(tp=2, dp=2, pp=2), "tp-cp-ep-dp-pp", "pp-tp", [[0, 1, 4, 5], [2, 3, 6, 7]]),
    (
        dict(tp=2, cp=2, dp=2, pp=2),
        "tp-cp-ep-dp-pp",
        "cp",
        [[0, 2], [1, 3], [4, 6], [5, 7], [8, 10], [9, 11], [12, 14], [13, 15]],
    ),
    (
        dict(tp=2, cp=2, dp=2, pp=2),
        "tp-cp-ep-dp-pp",
        "dp-cp",
        [[0, 2, 4, 6], [1, 3, 5, 7], [8, 10, 12, 14], [9, 11, 13, 15]],
    ),
]


@pytest.mark.parametrize("sizes, order, along, expected", MEGATRON)
def test_groups_are_megatrons(sizes, order, along, expected):
    sizes = {"tp": 1, "cp": 1, "ep": 1, "dp": 1, "pp": 1} | sizes
    assert find("groups").reference(sizes, order, along) == expected


@pytest.mark.parametrize("case", find("clip").cases, ids=str)
def test_the_norm_is_that_of_each_number_once(case):
    one = find("clip")
    pp, _, tp, _, dtype = case.arguments(0)
    there = [one.module.numbers(2, 6, seed=200 + part, dtype=dtype) for part in range(tp)]
    for stage in range(pp):
        there += [one.module.numbers(3 + stage, 4, seed=10 * stage + part, dtype=dtype) for part in range(tp)]
        there += [one.module.numbers(5, seed=100 + 10 * stage + number, dtype=dtype) for number in range(2)]
    for found in one.right(case).returned:
        torch.testing.assert_close(found["the norm"], torch.nn.utils.get_total_norm(there), rtol=1e-5, atol=0)


@pytest.mark.parametrize("case", find("mended_two_axes").cases, ids=str)
def test_the_mended_step_is_one_process(case):
    one = find("mended_two_axes")
    dp, _, max_norm, rows, dtype = case.arguments(0)
    width, hidden = one.module.WIDTH, one.module.HIDDEN
    up = one.module.numbers(width, hidden, seed=2, dtype=dtype).requires_grad_()
    down = (one.module.numbers(hidden, width, seed=3, dtype=dtype) / 2).requires_grad_()
    x, targets = (one.module.numbers(dp * rows, width, seed=seed, dtype=dtype) for seed in (10, 20))
    loss = (torch.tanh(x @ up) @ down - targets).square().mean()
    loss.backward()
    norm = torch.nn.utils.clip_grad_norm_([up, down], max_norm)
    tp = case.ranks // dp
    for rank, found in enumerate(one.right(case).returned):
        torch.testing.assert_close(found["the loss"], loss.detach(), rtol=1e-5, atol=1e-6)
        torch.testing.assert_close(found["the norm"], norm, rtol=1e-5, atol=1e-6)
        part = up.grad.chunk(tp, 1)[rank % tp]
        torch.testing.assert_close(found["up's gradient"], part, rtol=1e-4, atol=1e-6)
