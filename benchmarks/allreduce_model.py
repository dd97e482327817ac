"""Collectives by the library's rule (hardware/algorithms.py), beside published measurements: every row.

    python benchmarks/allreduce_model.py

Errors are those of the time: at +30 % the rule is slower than the machine. One call of PyTorch's on an idle device is
timed with what the host takes to start it (published_collectives.CALL); calls that are queued, and those of nccl-tests,
the A100s, are not. The fabrics' constants were fitted to these tables of H200s, B200s and A100s (fabrics.py).
"""

from tinydist.hardware import bus_bandwidth, bus_factor, find_cluster
from tinydist.hardware.algorithms import timing
from tinydist.hardware.published_collectives import (
    ALL_REDUCES,
    CALL,
    COLD,
    HALVES,
    ONES,
    QUEUED,
    RAN,
    SHOTS,
    SYMMETRIC,
)

GIGA, US = 1e9, 1e6
MACHINES = {"8 x A100": "A100 node", "8 x H200": "H100 node", "8 x B200": "B200 node", "4 x 8 B200": "B200 EFA pod"}


def ranks_of(system):
    return find_cluster(MACHINES[system]).size


def ours(system, nbytes, algorithm=None, call=0.0):
    """(seconds, name of algorithm and protocol)"""
    cluster = find_cluster(MACHINES[system])
    time = timing("all_reduce", nbytes, cluster.size, cluster.devices_per_node, cluster, algorithm)
    return call + time.seconds, f"{time.algorithm} {time.protocol}"


def published_seconds(system, nbytes, table=ALL_REDUCES):
    return nbytes * bus_factor("all_reduce", ranks_of(system)) / table[system][nbytes]


def error(system, nbytes, table=ALL_REDUCES, algorithm=None):
    call = CALL[system] if table is ALL_REDUCES else 0.0
    return ours(system, nbytes, algorithm, call)[0] / published_seconds(system, nbytes, table) - 1


def errors(table=ALL_REDUCES, algorithm=None):
    """{(system, bytes): error of the time}"""
    return {(system, size): error(system, size, table, algorithm) for system in table for size in table[system]}


def readable(nbytes):
    exponent = (nbytes.bit_length() - 1) // 10
    return f"{nbytes >> 10 * exponent} {['B', 'KiB', 'MiB', 'GiB'][exponent]}"


def shares(found):
    found = [abs(each) for each in found]
    near, far = (sum(each <= most for each in found) for most in (0.15, 0.30))
    return (
        f"{len(found)} rows, {near / len(found):.0%} within 15 %, {far / len(found):.0%} within 30 %; "
        f"mean {sum(found) / len(found):.1%}, worst {max(found):.0%}"
    )


def table(system, rows=ALL_REDUCES, algorithm=None):
    """Each row: published, ours, error, the algorithm chosen."""
    call = CALL[system] if rows is ALL_REDUCES else 0.0
    print(f"{'size':>8} {'GB/s':>8} {'ours':>8} {'us':>10} {'ours':>10} {'error':>7}")
    for size, measured in rows[system].items():
        seconds, chosen = ours(system, size, algorithm, call)
        speed = bus_bandwidth("all_reduce", size, seconds, ranks_of(system)) / GIGA
        published = published_seconds(system, size, rows)
        note = "  cold start" if rows is ALL_REDUCES and (system, size) in COLD else ""
        if rows is QUEUED and system == "4 x 8 B200":
            note = f"  (ran: {RAN[size]})"
        print(
            f"{readable(size):>8} {measured / GIGA:>8.2f} {speed:>8.2f} {published * US:>10.1f} {seconds * US:>10.1f} "
            f"{seconds / published - 1:>+7.0%}  {chosen}{note}"
        )


def tables(title, rows, algorithm=None):
    for system in rows:
        print(f"\n{system}: {title}\n")
        table(system, rows, algorithm)
        print(shares([error(system, size, rows, algorithm) for size in rows[system]]))
    print(f"\nall of these: {shares(errors(rows, algorithm).values())}")


def row(label, published, what, nbytes, ranks, cluster, algorithm):
    time = timing(what, nbytes, ranks, ranks, find_cluster(cluster), algorithm)
    off = time.seconds / published - 1
    chosen = f"{time.algorithm} {time.protocol}"
    print(
        f"{label:<48} {readable(nbytes):>8} {published * US:>10.1f} {time.seconds * US:>10.1f} {off:>+7.0%}  {chosen}"
    )
    return off


def others():
    print(f"\n{'other collectives, and servers':<48} {'size':>8} {'us':>10} {'ours':>10} {'error':>7}\n")
    halves = [
        row(f"8 H100: {what} {algorithm or ''}", seconds, what, size, 8, "H100 node", algorithm)
        for (what, algorithm), rows in HALVES.items()
        for size, seconds in rows.items()
    ]
    ones = []
    for what, (small, bandwidth) in ONES.items():
        ones.append(row(f"8 B200: {what}", small, what, 1024, 8, "B200 node", None))
        large = 2**34 * bus_factor(what, 8) / bandwidth
        ones.append(row(f"8 B200: {what}", large, what, 2**34, 8, "B200 node", None))
    shots = [
        row(
            f"{ranks} H100: {algorithm} ({source})",
            microseconds / US,
            "all_reduce",
            size,
            ranks,
            "H100 node",
            algorithm,
        )
        for source, kernels in SHOTS.items()
        for (ranks, algorithm), rows in kernels.items()
        for size, microseconds in rows.items()
    ]
    for name, found in [("all_gather, reduce_scatter", halves), ("nine on B200", ones), ("servers", shots)]:
        print(f"{name}: {shares(found)}")


if __name__ == "__main__":
    tables("all-reduce, one call on an idle device (A100: nccl-tests, back to back)", ALL_REDUCES)
    warm = [each for key, each in errors().items() if key not in COLD]
    print(f"without the cold starts: {shares(warm)}")
    tables("all-reduce, calls queued", QUEUED)
    tables("all-reduce on symmetric memory", SYMMETRIC, "symmetric")
    others()
