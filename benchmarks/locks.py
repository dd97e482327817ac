"""One project with three dependencies, locked by four tools: their lock files, their words, and how long they take.

    PATH=BIN:$PATH python -m benchmarks.locks [--write]     # --write: into notebooks/data/22_locks, for notebook 22

BIN has uv, poetry, pip-compile (pip-tools), and pip from 25.1 on, each installed in an environment of its own
(`uv tool install` does it, or pipx). All ask one index, PyPI's, whatever pip is configured to.

    locks       pyproject.toml and what each tool makes of it, as it is
    before      what uv would have answered a month earlier: nothing that was published later
    conflicts   what each says when requests 2.28.0 (urllib3 < 1.27) and urllib3 2 are asked for together
    times       of each tool, over those of uv, medians of five runs (three with an empty cache)
"""

import argparse
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from datetime import date
from pathlib import Path

from benchmarks import csv_rows
from benchmarks.lock_files import words

FOLDER = Path(__file__).parents[1] / "notebooks" / "data" / "22_locks"
PROJECT = """\
[project]
name = "small"
version = "0.1.0"
requires-python = "{python}"
dependencies = [{dependencies}]

[[tool.poetry.source]]  # for Poetry, which else asks another interface of PyPI
name = "simple"
url = "https://pypi.org/simple/"
priority = "primary"
"""
SMALL = ["numpy>=2.2", "requests>=2.32", "tqdm>=4.67"]
CONFLICT = ["requests==2.28.0", "urllib3>=2"]
PYTHON = ">=3.11,<4"
MONTH_BEFORE = "2026-10-29"
COMPILE = ["pip-compile", "--no-header", "--output-file", "requirements.txt", "pyproject.toml"]
COMMANDS = {
    "uv": ["uv", "lock", "--python", sys.executable],
    "Poetry": ["poetry", "lock"],
    "pip": ["pip", "lock"],  # and the dependencies
    "pip-tools": [*COMPILE, "--generate-hashes"],
}
FILES = {"uv": "uv.lock", "Poetry": "poetry.lock", "pip": "pylock.toml", "pip-tools": "requirements.txt"}
EXPORT = ["uv", "export", "--frozen", "--offline", "--no-emit-project", "--no-hashes", "--no-header", "--no-annotate"]
CACHES = ("UV_CACHE_DIR", "POETRY_CACHE_DIR", "PIP_CACHE_DIR", "PIP_TOOLS_CACHE_DIR")
QUIET = {"NO_COLOR": "1", "COLUMNS": "200", "UV_NO_PROGRESS": "1", "POETRY_NO_INTERACTION": "1"}


def settings(cache):
    """Of a tool that runs: a cache of its own, and no other index than PyPI."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PIP_FIND", "PIP_INDEX"))}
    ours = {"PIP_CONFIG_FILE": os.devnull, "POETRY_VIRTUALENVS_CREATE": "false"}
    return kept | QUIET | ours | dict.fromkeys(CACHES, str(cache))


def project(folder, dependencies, python=PYTHON):
    listed = ", ".join(f'"{each}"' for each in dependencies)
    (folder / "pyproject.toml").write_text(PROJECT.format(python=python, dependencies=listed))
    return folder


def run(command, cache, dependencies=SMALL, python=PYTHON, fails=False):
    """In a new folder: the folder, what was printed, the seconds."""
    folder = project(Path(tempfile.mkdtemp()), dependencies, python)
    command = [*command, *(dependencies if command[0] == "pip" else [])]
    started = time.perf_counter()
    where = dict(cwd=folder, env=settings(cache), stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    done = subprocess.run(command, text=True, timeout=500, **where)
    assert (done.returncode != 0) == fails, (command, done.stdout[-2000:])
    return folder, done.stdout, time.perf_counter() - started


def version_of(tool):
    said = subprocess.check_output([COMMANDS[tool][0], "--version"], text=True)
    return {"version": f"{tool} {re.search(r'[0-9]+([.][0-9]+)+', said)[0]}", "date": date.today().isoformat()}


def exported(folder):
    """The lock in a folder, as requirements."""
    return subprocess.check_output(EXPORT, cwd=folder, text=True)


def before(cache):
    return exported(run([*COMMANDS["uv"], "--exclude-newer", MONTH_BEFORE], cache)[0])


def times(full, runs):
    """Rows: seconds of a tool, over uv's median, with a full and an empty cache."""
    rows = []
    for cache, often in {"full": runs, "empty": max(1, runs - 2)}.items():
        seconds = {}
        for tool, command in (COMMANDS | {"pip-tools, no hashes": COMPILE}).items():
            seconds[tool] = [run(command, full if cache == "full" else tempfile.mkdtemp())[2] for _ in range(often)]
        unit = statistics.median(seconds["uv"])
        for tool, taken in seconds.items():
            of = {"times_uv": statistics.median(taken), "least": min(taken), "most": max(taken)}
            rows.append({"tool": tool, "cache": cache} | {name: f"{value / unit:.1f}" for name, value in of.items()})
    return rows


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--runs", type=int, default=5)
    chosen = parser.parse_args()
    about = {tool: version_of(tool) for tool in COMMANDS}
    with tempfile.TemporaryDirectory() as tempfile.tempdir:
        cache = tempfile.mkdtemp()  # full after this
        texts = {tool: (run(command, cache)[0] / FILES[tool]).read_text() for tool, command in COMMANDS.items()}
        month_before = before(cache)
        said = {tool: words(run(command, cache, CONFLICT, fails=True)[1]) for tool, command in COMMANDS.items()}
        taken = [row | about[row["tool"].partition(",")[0]] for row in times(cache, chosen.runs)]
    conflicts = [{"tool": tool, "words": said[tool]} | about[tool] for tool in said]
    print(*taken, *conflicts, sep="\n")
    if chosen.write:
        project(FOLDER, SMALL)
        for tool, text in texts.items():
            (FOLDER / FILES[tool]).write_text(text)
        (FOLDER / "export.txt").write_text(exported(FOLDER))
        (FOLDER / "export_before.txt").write_text(month_before)
        csv_rows.write(FOLDER / "conflicts.csv", conflicts)
        earlier = csv_rows.read(FOLDER / "times.csv")  # times differ from run to run: all are kept
        run_now = 1 + max(int(row["run"]) for row in earlier)
        csv_rows.write(FOLDER / "times.csv", [*earlier, *({"run": run_now} | row for row in taken)])


if __name__ == "__main__":
    main()
