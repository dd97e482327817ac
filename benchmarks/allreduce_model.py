"""The alpha-beta model of an all-reduce beside published benchmarks.

    python benchmarks/allreduce_model.py

Two models, both a ring on one link: `fitted`, with the latency and bandwidth that suit the benchmark best, and
`data sheet`, a preset of the library as it is (for four nodes: the hierarchical all-reduce). Errors are those of
the time: at +30 % the model is slower than the machine.
"""

from tinydist.hardware import bus_bandwidth, bus_factor, costs, find_cluster, fitted_link
from tinydist.hardware.published import ALL_REDUCES, SIZES

GIGA = 1e9

# What was fitted to published points: t = latency + 2(p-1)/p n / bandwidth, least absolute deviations of log t. For the
# four nodes without the two smallest sizes, which are far off any line.
# ranks, seconds, bytes/s, points left out
FITS = {
    "8 x A100": (8, 68.7e-6, 225.5 * GIGA, 0),
    "8 x B200": (8, 48.7e-6, 718.8 * GIGA, 0),
    "4 x 8 B200": (32, 411.5e-6, 381.8 * GIGA, 2),
}
PRESETS = {"8 x A100": "A100 node", "8 x B200": "B200 node", "4 x 8 B200": "B200 pod"}


def fitted_seconds(system, nbytes):
    ranks, latency, bandwidth, _ = FITS[system]
    return costs.ring_all_reduce(nbytes, ranks, fitted_link(latency, bandwidth, ranks))


def data_sheet_seconds(system, nbytes):
    cluster = find_cluster(PRESETS[system])
    levels = cluster.devices_per_node, cluster.nodes, cluster.intra_node, cluster.inter_node_shared
    return costs.hierarchical_all_reduce(nbytes, *levels)


def published_seconds(system, nbytes):
    return nbytes * bus_factor("all_reduce", FITS[system][0]) / ALL_REDUCES[system][nbytes]


def errors(system, model):
    """Of the model's time, relative to the published one, for the sizes that were fitted."""
    left_out = FITS[system][-1]
    return [model(system, size) / published_seconds(system, size) - 1 for size in SIZES[left_out:]]


def readable(nbytes):
    exponent = (nbytes.bit_length() - 1) // 10
    return f"{nbytes >> 10 * exponent} {['B', 'KiB', 'MiB', 'GiB'][exponent]}"


def table(system):
    print(f"\n{system}: all-reduce, bus bandwidth in GB/s, error of the time\n")
    print(f"{'size':>8} {'published':>10} {'fitted':>10} {'error':>8} {'data sheet':>11} {'error':>8}")
    for size, measured in ALL_REDUCES[system].items():
        line = f"{readable(size):>8} {measured / GIGA:>10.2f}"
        for model, width in [(fitted_seconds, 10), (data_sheet_seconds, 11)]:
            seconds = model(system, size)
            speed = bus_bandwidth("all_reduce", size, seconds, FITS[system][0]) / GIGA
            line += f" {speed:>{width}.2f} {seconds / published_seconds(system, size) - 1:>+8.0%}"
        print(line)
    for name, model in [("fitted", fitted_seconds), ("data sheet", data_sheet_seconds)]:
        sizes = [abs(error) for error in errors(system, model)]
        print(f"{name}: mean error {sum(sizes) / len(sizes):.1%}, largest {max(sizes):.1%}")


if __name__ == "__main__":
    for system in FITS:
        table(system)
