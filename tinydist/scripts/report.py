"""``--report FOLDER``: what a run did, for people and for programs.

timeline.png, memory.png, traffic.png   as a notebook shows a run
trace.json                              for Perfetto (ui.perfetto.dev), and for ``python -m tinydist diagnose``
summary.txt                             the lines that are printed, and a line on each picture
summary.json                            ranks, seconds, bytes sent by operation and by rank, peaks by rank and purpose
"""

import io
import json
from contextlib import redirect_stdout

from ..training.report import new, write_run
from .summary import bytes_by_operation


def write_report(run, lines, wall, folder):
    folder, captions = new(folder), io.StringIO()
    with redirect_stdout(captions):
        write_run(run, folder)
    (folder / "summary.txt").write_text("\n".join([*lines, "", captions.getvalue()]))
    (folder / "summary.json").write_text(json.dumps(numbers(run, wall), indent=1))


def numbers(run, wall):
    return {
        "ranks": len(run.results),
        "cluster": str(run.cluster),
        "wall_seconds": wall,
        "virtual_seconds": run.seconds,
        "sent_bytes_by_operation": bytes_by_operation(run),
        "sent_bytes_by_rank": [sum(row) for row in run.traffic],
        "peak_bytes_by_rank": [{"peak": held.peak, **held.at_peak} for held in run.memory],
        "replaced": getattr(run, "replaced", None) or {},
    }
