"""Published rates of attention kernels: each is below the peak, and the fits of attention_kernels.py are near them."""

import pytest

from tinydist.hardware import find_device
from tinydist.hardware.published_attention import FLASH_3, GPT2_STEP, OTHER_RUNS, TOKENS

PEAK = find_device("H100").peak_of("bfloat16") / 1e12


def test_no_kernel_is_faster_than_the_peak():
    assert all(set(rates) <= set(TOKENS) for rates in [*FLASH_3.values(), *OTHER_RUNS.values()])
    assert max(max(rates.values()) for rates in [*FLASH_3.values(), *OTHER_RUNS.values()]) < PEAK


@pytest.mark.parametrize("kernel", ["FlashAttention-3", "cuDNN"])
def test_others_measured_no_more_than_the_authors_of_flash_3(kernel):
    others = [rates for (name, _), rates in OTHER_RUNS.items() if name == kernel]
    assert others and all(rate <= FLASH_3[kernel][tokens] for each in others for tokens, rate in each.items())


def test_attention_cannot_have_moved_faster_than_the_memory():
    for each in GPT2_STEP.values():
        assert each.gigabytes * 1e9 / (each.milliseconds / 1e3) < find_device("A100 40GB").memory_bandwidth
