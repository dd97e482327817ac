"""Accelerators, held to their data sheets."""

import pickle
from dataclasses import replace

import pytest

from tinydist.hardware import DEVICES, find_device
from tinydist.hardware.costs import op_time
from tinydist.hardware.devices import A100_80GB, B200, H100, H200, INSTANT, LAPTOP_CPU, V100

GPUS = [device for device in DEVICES.values() if device is not LAPTOP_CPU]

# Dense TFLOP/s, GB, TB/s: stas00/ml-engineering@744d01e1 compute/accelerator/README.md (read).
SHEETS = [
    (A100_80GB, dict(float32=19.5, tf32=156, float16=312, bfloat16=312, int8=624), 80, 2.0),
    (H100, dict(float32=67, tf32=494.5, float16=989, bfloat16=989, float8=1979, int8=1979), 80, 3.35),
    (H200, dict(float32=67, tf32=494.5, float16=989, bfloat16=989, float8=1979, int8=1979), 141, 4.8),
    (B200, dict(float32=80, tf32=1125, float16=2250, bfloat16=2250, float8=4500, int8=4500), 180, 8.0),
    (V100, dict(float16=125), None, None),  # the rest of this sheet was not read
]

# Best measured bfloat16 product / peak, in percent, one digit: its MAMF tables (read).
EFFICIENCIES = [(A100_80GB, 86.9), (H100, 80.3), (B200, 77.6)]


@pytest.mark.parametrize("device, teraflops, gigabytes, terabytes", SHEETS, ids=lambda value: str(value)[:9])
def test_data_sheet(device, teraflops, gigabytes, terabytes):
    assert {dtype: device.peak_of(dtype) / 1e12 for dtype in teraflops} == pytest.approx(teraflops)
    if gigabytes:
        assert (device.memory, device.memory_bandwidth) == (gigabytes * 1e9, terabytes * 1e12)


@pytest.mark.parametrize("device, percent", EFFICIENCIES, ids=str)
def test_measured_product(device, percent):
    assert 100 * device.best_matmul["bfloat16"] / device.peak_of("bfloat16") == pytest.approx(percent, abs=0.06)


def test_sizes_of_the_a100_differ_in_memory_alone():
    small, large = find_device("A100 40GB"), find_device("A100 80GB")
    assert small.peak == large.peak
    assert (small.memory, large.memory) == (40e9, 80e9)


@pytest.mark.parametrize("device", GPUS, ids=str)
def test_narrower_is_no_slower(device):
    order = [name for name in ("float64", "float32", "tf32", "bfloat16", "float8") if name in device.peak]
    rates = [device.peak_of(name) for name in order]
    assert rates == sorted(rates)
    assert all(rate < device.peak_of(dtype) for dtype, rate in device.best_matmul.items())


def test_dtypes_of_torch_are_known():
    assert H100.peak_of("torch.bfloat16") == 989e12
    assert H100.peak_of("torch.float8_e4m3fn") == H100.peak_of("torch.float8_e5m2") == 1979e12


def test_sharing():
    quarter = LAPTOP_CPU.shared_by(4)
    assert quarter.peak_of("float32") == LAPTOP_CPU.peak_of("float32") / 4
    assert quarter.memory == LAPTOP_CPU.memory / 4
    assert quarter.launch_overhead == LAPTOP_CPU.launch_overhead


def test_devices_can_be_keys_and_travel():
    assert {device: name for name, device in DEVICES.items()}[A100_80GB] == "A100 80GB"
    assert pickle.loads(pickle.dumps(A100_80GB)) == A100_80GB


def test_every_device_has_a_source():
    assert [device.name for device in DEVICES.values() if not device.source] == []


def test_lookup():
    assert find_device("h100") is H100
    assert find_device(H100) is H100
    with pytest.raises(ValueError, match=r"unknown device 'H1000'; available: 'V100', .*'H100', .*'laptop CPU'"):
        find_device("H1000")


def test_missing_dtype():
    with pytest.raises(ValueError, match=r"V100 has no peak FLOP/s for float8; available: float64, float32, .*float16"):
        V100.peak_of("float8")


@pytest.mark.parametrize(
    "change, message",
    [
        (dict(memory=0), "device 'H100': memory must be > 0, got 0"),
        (dict(memory_bandwidth=-1), "device 'H100': memory bandwidth must be > 0, got -1"),
        (dict(peak={"int8": 0}), "device 'H100': peak FLOP/s of int8 must be > 0, got 0"),
        (dict(launch_overhead=-1e-6), "device 'H100': launch overhead must be 0 s or more, got -1e-06"),
    ],
)
def test_impossible_device(change, message):
    with pytest.raises(ValueError, match=f"^{message}$"):
        replace(H100, **change)


def test_instant_takes_no_time():
    assert op_time(INSTANT, flops=1e30, nbytes=1e30) == 0
    assert INSTANT.name not in DEVICES  # nobody finds it by chance
