"""Seconds and bytes as text: three significant digits and an SI prefix."""

SECONDS = [(1.0, "s"), (1e-3, "ms"), (1e-6, "us"), (1e-9, "ns")]
BYTES = [(1e12, "TB"), (1e9, "GB"), (1e6, "MB"), (1e3, "kB"), (1, "B")]


def unit_for(largest, units):
    """(size, name) of the largest unit in which ``largest`` is 1 or more."""
    return next((unit for unit in units if largest >= 0.9995 * unit[0]), units[-1])


def digits(number):
    """Three digits: 3.12, 31.2, 312; two below 0.1: 0.012."""
    if 0 < abs(number) < 0.1:
        return f"{number:.2g}"
    return f"{number:.{max(0, 3 - len(str(int(round(abs(number), 2)))))}f}"


def seconds_text(seconds):
    size, unit = unit_for(seconds, SECONDS)
    return f"{digits(seconds / size)} {unit}" if seconds else "0 s"


def bytes_text(nbytes):
    size, unit = unit_for(nbytes, BYTES)
    return f"{nbytes:.0f} B" if unit == "B" else f"{digits(nbytes / size)} {unit}"
