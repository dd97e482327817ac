"""Matmuls as measured, beside what hardware/products.py says: each table, its error, its bias, its worst rows.

    python benchmarks/products.py

At the end, A100 once more: two rates fitted again to random halves of its rows, and scored on the other halves.

Tables and their sources: measured/README.md. Matmuls of less than 0.15 ms in B200's table were measured before its
clock fell (hardware/products.py), so they are scored as a short benchmark; "all warm" is without that distinction.
"""

import csv
import random
from dataclasses import replace
from pathlib import Path

from tinydist.hardware.products import RATES, product_time

MEASURED = Path(__file__).parent / "measured"
PEAKS = {"B200": 2250e12, "A100 PCIe": 312e12}
SHORT = 0.15e-3  # seconds, predicted cold: then a benchmark of a few repetitions is over in some milliseconds


def by_key(name):
    """(device, (rows, columns, inner), accumulate, seconds) of a table with parts of the peak."""
    for row in csv.DictReader((MEASURED / name).open()):
        sizes = dict(each.split("=") for each in row["key"].split(", "))
        m, k, n = (int(sizes[name]) for name in "mkn")
        seconds = 2 * m * k * n / (float(row["measured"]) * PEAKS[row["device"]])
        yield row["device"], (m, n, k), sizes["out_dtype"] == "fp32", seconds


def by_seconds(name):
    for row in csv.DictReader((MEASURED / name).open()):
        m, k, n = (int(row[name]) for name in "mkn")
        yield row["device"], (m, n, k), False, float(row["seconds"])


def measured():
    """All rows, by device."""
    rows = {}
    for each in (*by_key("products_b200.csv"), *by_key("products_a100_pcie.csv"), *by_seconds("products_sampled.csv")):
        rows.setdefault(each[0], []).append(each)
    return rows


def predicted(row, warm=False):
    device, product, accumulate, _ = row
    cold = product_time(device, 1, *product, accumulate=accumulate, sustained=False)
    if device == "B200" and cold < SHORT and not warm:
        return cold
    return product_time(device, 1, *product, accumulate=accumulate)


def errors(rows, warm=False):
    return [predicted(row, warm) / row[3] - 1 for row in rows]


def mean(values):
    values = list(values)
    return sum(values) / len(values)


def refitted(rows, peak, halves=3):
    """(error of the half that it was fitted to, of the other half), of two rates: ``within`` and ``sustained``."""
    for seed in range(halves):
        shuffled = random.Random(seed).sample(rows, len(rows))
        half, other = shuffled[: len(rows) // 2], shuffled[len(rows) // 2 :]
        tried = [
            replace(RATES[rows[0][0]], within=within / 100 * peak, sustained=sustained / 100 * peak)
            for within in range(96, 118, 2)
            for sustained in range(77, 87)
        ]
        best = min(tried, key=lambda rates: error_of(rates, half))
        yield error_of(best, half), error_of(best, other)


def error_of(rates, rows):
    return mean(abs(product_time(rates, 1, *row[1]) / row[3] - 1) for row in rows)


def main():
    print(f"{'':12} rows  mean error    bias  all warm   worst rows: m x n x k, measured, predicted us")
    for device, rows in measured().items():
        found = errors(rows)
        worst = sorted(zip(map(abs, found), rows, strict=True), key=lambda each: each[0])[-3:][::-1]
        shown = "; ".join(f"{'x'.join(map(str, r[1]))} {r[3] * 1e6:.0f} {predicted(r) * 1e6:.0f}" for _, r in worst)
        warm = mean(map(abs, errors(rows, warm=True)))
        print(f"{device:12}{len(rows):5}{mean(map(abs, found)):12.1%}{mean(found):+8.1%}{warm:10.1%}   {shown}")
    for device, rates in RATES.items():
        print(f"{device:12}{rates.sustained / 1e12:6.0f} TFLOP/s sustained at {rates.watts} W")
    for mine, other in refitted(measured()["A100"], 312e12):
        print(f"A100, fitted to a half: {mine:.1%} there, {other:.1%} on the other half")


if __name__ == "__main__":
    main()
