"""The rule for collectives beside every published row: within 30 %, but for rows that nobody has explained."""

import runpy
from dataclasses import replace
from pathlib import Path
from statistics import median

import pytest

from tinydist.hardware import bus_factor, find_cluster
from tinydist.hardware.algorithms import collective_time
from tinydist.hardware.published_collectives import (
    ALL_REDUCES,
    CALL,
    COLD,
    EXCHANGES,
    FORCED,
    HALVES,
    LARGE,
    OLDER,
    ONES,
    PODS,
    QUEUED,
    RAN,
    SHOTS,
    SIZES,
    SYMMETRIC,
)

MODEL = runpy.run_path(str(Path(__file__).parents[2] / "benchmarks" / "allreduce_model.py"))
ERRORS = MODEL["errors"]()
MIB = 2**20


UNEXPLAINED = {("8 x A100", size) for size in SIZES[:7]} | {("4 x 8 B200", size) for size in SIZES[3:11]}


@pytest.mark.parametrize("system, size", ERRORS)
def test_every_all_reduce_is_within_30_percent_but_those_that_nobody_has_explained(system, size):
    """A100s up to 2 MiB took 24 to 48 us longer than by the rule, four nodes up to 32 MiB about 200, one by one."""
    error = ERRORS[system, size]
    assert abs(error) <= 0.30 or (system, size) in COLD or ((system, size) in UNEXPLAINED and -0.63 < error < -0.30)


def test_nine_of_ten_all_reduces_on_one_node_of_hoppers_and_blackwells_are_within_15_percent():
    errors = [error for (system, _), error in ERRORS.items() if system in ("8 x H200", "8 x B200")]
    assert sum(abs(error) <= 0.15 for error in errors) >= 0.9 * len(errors) == 36


def test_what_the_host_adds_to_a_call_is_nothing_in_nccl_tests_and_20_us_in_pytorch():
    assert CALL["8 x A100"] == 0
    for system in ("8 x H200", "8 x B200"):
        added = [MODEL["published_seconds"](system, n) - MODEL["published_seconds"](system, n, QUEUED) for n in SIZES]
        assert median(added) == pytest.approx(CALL[system], abs=2e-6)


def test_the_forced_pair_and_its_order():
    """Four nodes, 4 GiB: rings against the hierarchy NVLSTree, 18 % slower on B200s and 15 % on H200s."""
    pod, forced = find_cluster("B200 EFA pod"), FORCED["4 x 8 B200"]
    slower = [1 - tree / rings for rings, tree in (pair.values() for pair in FORCED.values())]
    assert slower == pytest.approx([0.18, 0.15], abs=0.005)
    for algorithm, speed in forced.items():
        took = 2**32 * bus_factor("all_reduce", 32) / speed
        assert collective_time("all_reduce", 2**32, 32, 8, pod, algorithm) == pytest.approx(took, rel=0.03)


def test_cold_starts_are_the_first_of_their_table_and_slower_than_what_came_next():
    table = ALL_REDUCES["4 x 8 B200"]
    seconds = [MODEL["published_seconds"]("4 x 8 B200", size) for size in table]
    assert len(COLD) == 3 and min(seconds[:3]) > 1.4 * seconds[3]
    later = [MODEL["error"]("4 x 8 B200", size, QUEUED) for size in SIZES[:3]]
    assert max(map(abs, later)) < 0.15  # the same nodes, the same sizes, later


def test_calls_that_are_queued():
    """Worst: 8 and 16 MiB on four nodes, where AWS's plugin took a tree. NCCL 2.27.7 was 53 % faster at 16 MiB."""
    errors = MODEL["errors"](QUEUED)
    far = {key for key, error in errors.items() if abs(error) > 0.30}
    assert far == {("4 x 8 B200", 8 * MIB), ("4 x 8 B200", 16 * MIB)}
    assert sum(abs(error) <= 0.15 for error in errors.values()) >= 52


def test_the_algorithm_is_the_one_in_nccls_log_where_it_matters():
    """From 8 to 64 MiB AWS's plugin takes another than the fastest by our rule."""
    chosen = {size: MODEL["ours"]("4 x 8 B200", size)[1].split()[1] for size in SIZES}
    other = {size for size in SIZES if chosen[size] != RAN[size]}
    assert other == {8 * MIB, 16 * MIB, 32 * MIB, 64 * MIB}
    h200 = [MODEL["ours"]("8 x H200", size)[1] for size in SIZES]
    assert h200[:6] == ["NCCL Ring LL"] * 6 and h200[8:] == ["NCCL NVLS Simple"] * 12  # its log: NVLS from 2 MiB


def test_symmetric_memory():
    errors = MODEL["errors"](SYMMETRIC, "symmetric").values()
    assert max(map(abs, errors)) < 0.17


def relative(what, size, seconds, algorithm, ranks=8, cluster="H100 node"):
    return collective_time(what, size, ranks, ranks, find_cluster(cluster), algorithm) / seconds - 1


def test_all_gathers_and_reduce_scatters():
    errors = [
        relative(what, size, seconds, algorithm)
        for (what, algorithm), rows in HALVES.items()
        for size, seconds in rows.items()
    ]
    assert max(map(abs, errors)) < 0.18 and sum(abs(error) < 0.1 for error in errors) >= 17


@pytest.mark.parametrize("what", ONES)
def test_nine_collectives_on_b200(what):
    """A broadcast of 1 KiB is timed one behind the other, and they overlap."""
    small, bandwidth = ONES[what]
    least = 0.5 if what in ("broadcast", "reduce") else 0.21
    assert abs(relative(what, 1024, small, None, cluster="B200 node")) < least
    large = 2**34 * MODEL["bus_factor"](what, 8) / bandwidth
    assert abs(relative(what, 2**34, large, None, cluster="B200 node")) < 0.07


def test_kernels_of_servers():
    errors = [
        relative("all_reduce", size, microseconds * 1e-6, algorithm, ranks)
        for kernels in SHOTS.values()
        for (ranks, algorithm), rows in kernels.items()
        for size, microseconds in rows.items()
    ]
    assert max(map(abs, errors)) < 0.33 and sum(abs(error) <= 0.15 for error in errors) >= 28


def test_a_direct_exchange_beats_the_ring_where_it_did():
    """On 8 H100s: sglang 7.8 and 16.7 us, vLLM 11.8 us, torch's two-shot 15 us of 512 KiB; NCCL 18 to 24."""
    node = find_cluster("H100 node")

    def seconds(size, algorithm):
        return collective_time("all_reduce", size, 8, 8, node, algorithm)

    for size, algorithm in [(2**15, "one-shot"), (2**15, "custom"), (2**18, "two-shot"), (2**19, "two-shot")]:
        assert seconds(size, algorithm) < seconds(size, "NCCL")
    for size in (16 * MIB, 128 * MIB):  # and does not where it did not: 125 and 121 us, 923 and 561
        assert seconds(size, "two-shot") > seconds(size, "NCCL")


def test_an_all_to_all_over_nodes_has_one_card_for_each_gpu():
    """Of what the cards of a node reach together: 19 % too much on V100s, 88 % on Selene, 18 % on A100s."""
    for (nodes, gpus, together, all_to_all), most in zip(EXCHANGES.values(), (1.20, 1.90, 1.20), strict=True):
        p = nodes * gpus
        assert 1 < together / gpus * (p - 1) / (p - gpus) / all_to_all < most


def test_an_older_nccl_was_nearer_where_the_rule_is_off_most():
    """On four nodes, -41 % at 16 MiB by NCCL 2.30.7: NCCL 2.27.7 took a third less."""
    errors = {size: (1 + MODEL["error"]("4 x 8 B200", size, QUEUED)) * faster - 1 for size, faster in OLDER.items()}
    assert max(map(abs, errors.values())) < 0.28 and abs(errors[16 * MIB]) < 0.11


def test_table_of_the_benchmark(capsys):
    MODEL["table"]("8 x A100")
    out = capsys.readouterr().out
    assert "  16 GiB   234.89" in out and "NCCL Ring Simple" in out
    assert len(out.splitlines()) == 21


def test_rows_of_pods():
    """Where NCCL chose, within 25 %, but for EFA v1. Rings that were forced take twice as long as by the rule."""
    for row in PODS:
        cluster = replace(find_cluster(row.node).pod(row.nodes), cards_per_node=row.cards)
        cluster = replace(cluster, inter_node=row.inter_node or cluster.inter_node)
        ours = collective_time("all_reduce", row.nbytes, row.nodes * row.gpus, row.gpus, cluster, row.algorithm)
        error = ours / row.seconds - 1
        if row.inter_node:
            assert -0.75 < error < -0.65
        else:
            assert abs(error) < 0.26 if row.algorithm is None else -0.55 < error < -0.44


def test_of_all_collectives_of_16_gib_only_the_all_reduce_gets_nvls():
    for name, speed in LARGE.items():
        what = name.split(",")[0]
        algorithm = "NCCL Ring" if "off" in name else None
        ours = collective_time(what, 2**34, 8, 8, find_cluster("H100 node"), algorithm)
        assert ours == pytest.approx(2**34 * bus_factor(what, 8) / speed, rel=0.02)
