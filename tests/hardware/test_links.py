"""Links, held to what was published of them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tinydist.hardware import LINKS, Link, find_link
from tinydist.hardware.links import NVLINK_4, NVSWITCH_H100, PCIE_5

# GB/s of one direction and of both: stas00/ml-engineering@744d01e1 network/README.md (read; PCIe is cut to whole GB/s).
PUBLISHED = {
    "PCIe 4": (31, 62),
    "PCIe 5": (63, 126),
    "NVLink 2": (150, 300),
    "NVLink 3": (300, 600),
    "NVLink 4": (450, 900),
    "NVLink 5": (900, 1800),
    "InfiniBand HDR": (25, 50),
    "InfiniBand NDR": (50, 100),
}

# What NCCL counts on, in GB/s: NVIDIA/nccl@5067397c src/graph/topo.h (read): per NVLink, and for PCIe 3.
NCCL = {"NVLink 2": 6 * 20.0, "NVLink 3": 12 * 20.0, "NVLink 4": 18 * 20.6, "NVLink 5": 18 * 40.1, "PCIe 3": 12.0}


@pytest.mark.parametrize("name", PUBLISHED)
def test_bandwidth_is_that_of_one_direction(name):
    one, both = PUBLISHED[name]
    assert int(find_link(name).bandwidth / 1e9) == one
    assert find_link(name).bidirectional == 2 * find_link(name).bandwidth
    assert find_link(name).bidirectional / 1e9 == pytest.approx(both, abs=1.1 if "PCIe" in name else 0)


@pytest.mark.parametrize("name", NCCL)
def test_nccl_counts_on_four_fifths(name):
    assert 0.75 < NCCL[name] * 1e9 / find_link(name).bandwidth < 0.85


def test_each_generation_of_pcie_is_twice_the_one_before():
    rates = [find_link(f"PCIe {generation}").bandwidth for generation in (3, 4, 5)]
    assert rates[1] / rates[0] == rates[2] / rates[1] == pytest.approx(2)


def test_ethernet_is_named_by_its_gigabits():
    assert find_link("Ethernet 10").bandwidth * 8 == 10e9
    assert find_link("Ethernet 100").bandwidth * 8 == 100e9


def test_a_switch_changes_who_reaches_whom_and_not_the_wire():
    assert (NVSWITCH_H100.bandwidth, NVSWITCH_H100.latency) == (NVLINK_4.bandwidth, NVLINK_4.latency)
    assert (NVSWITCH_H100.shape, NVLINK_4.shape) == ("switch", "mesh")


@given(st.floats(1e-6, 1.0))
def test_efficiency(part):
    assert PCIE_5.at(part).bandwidth == PCIE_5.bandwidth * part
    assert PCIE_5.at(part).latency == PCIE_5.latency


@given(st.integers(1, 1000))
def test_senders_share_evenly(senders):
    share = PCIE_5.shared_by(senders)
    assert senders * share.bandwidth == pytest.approx(PCIE_5.bandwidth)
    assert share.latency == PCIE_5.latency


def test_roce_is_as_fast_as_infiniband_of_its_speed():
    roce, infiniband = find_link("RoCE 400"), find_link("InfiniBand NDR")
    assert (roce.bandwidth, roce.latency) == (infiniband.bandwidth, infiniband.latency) == (50e9, 14e-6)


def test_lookup():
    assert find_link("nvlink 4") is NVLINK_4
    assert find_link(NVLINK_4) is NVLINK_4
    assert set(PUBLISHED) < set(LINKS)
    with pytest.raises(ValueError, match=r"unknown link 'NVLink 9'; available: 'PCIe 3', .*'NVLink 5', "):
        find_link("NVLink 9")


@pytest.mark.parametrize(
    "arguments, message",
    [
        ((1e-6, 0), "link 'wire': bandwidth must be > 0 bytes/s, got 0"),
        ((1e-6, -5e9), "link 'wire': bandwidth must be > 0 bytes/s, got -5000000000.0"),
        ((1e-6, float("nan")), "link 'wire': bandwidth must be > 0 bytes/s, got nan"),
        ((-1e-6, 5e9), "link 'wire': latency must be 0 s or more, got -1e-06"),
        ((1e-6, 5e9, "ring"), "link 'wire': shape must be one of switch, mesh, bus, got 'ring'"),
    ],
)
def test_impossible_link(arguments, message):
    with pytest.raises(ValueError, match=f"^{message}$"):
        Link("wire", *arguments)
