"""One project with three dependencies, locked by four tools: their lock files, their words, and how long they take.

    PATH=BIN:$PATH python -m benchmarks.locks [--write]     # --write: into notebooks/data/22_locks, for notebook 22

BIN has uv, poetry, pip-compile (pip-tools), and pip from 25.1 on, each installed in an environment of its own
(`uv tool install` does it, or pipx). All ask one index, PyPI's, whatever pip is configured to.

    locks       pyproject.toml and what each tool makes of it, as it is
    conflicts   what each says when requests 2.28.0 (urllib3 < 1.27) and urllib3 2 are asked for together
    torch       what torch needs on each platform, and its bytes, by uv.lock: nothing is downloaded
    times       of each tool, over those of uv, medians of five runs (three with an empty cache)
"""

import argparse
import os
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
import tomllib
from datetime import date
from pathlib import Path

from benchmarks import csv_rows

FOLDER = Path(__file__).parents[1] / "notebooks" / "data" / "22_locks"
PROJECT = """\
[project]
name = "small"
version = "0.1.0"
requires-python = "{python}"
dependencies = [{dependencies}]
"""
INDEX = """
[[tool.poetry.source]]  # for Poetry, which else asks another interface of PyPI
name = "simple"
url = "https://pypi.org/simple/"
priority = "primary"
"""
SMALL = ["numpy>=2.2", "requests>=2.32", "tqdm>=4.67"]
CONFLICT = ["requests==2.28.0", "urllib3>=2"]
TORCH = ["torch==2.13.0"]
PYTHON = ">=3.11,<4"
FILES = {"uv": "uv.lock", "Poetry": "poetry.lock", "pip": "pylock.toml", "pip-tools": "requirements.txt"}
COMPILE = ["pip-compile", "--quiet", "--no-header", "--output-file", "requirements.txt", "pyproject.toml"]
EXPORT = ["uv", "export", "--frozen", "--offline", "--no-emit-project", "--no-hashes", "--no-header", "--no-annotate"]
PLATFORMS = {"Linux, x86-64": "linux_x86_64", "macOS, arm64": "macosx_arm64", "Windows": "win_amd64"}


def commands(dependencies):
    return {
        "uv": ["uv", "lock", "--python", sys.executable],
        "Poetry": ["poetry", "lock"],
        "pip": ["pip", "lock", "--quiet", *dependencies],
        "pip-tools": [*COMPILE, "--generate-hashes"],
    }


def settings(cache):
    """Of a tool that runs: a cache of its own, and no other index than PyPI."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PIP_FIND", "PIP_INDEX"))}
    caches = dict.fromkeys(("UV_CACHE_DIR", "POETRY_CACHE_DIR", "PIP_CACHE_DIR", "PIP_TOOLS_CACHE_DIR"), str(cache))
    ours = {
        "PIP_CONFIG_FILE": os.devnull,
        "NO_COLOR": "1",
        "UV_NO_PROGRESS": "1",
        "POETRY_NO_INTERACTION": "1",
        "PYTHONUNBUFFERED": "1",
    }
    return kept | caches | ours | {"POETRY_VIRTUALENVS_CREATE": "false", "COLUMNS": "200"}


def project(folder, dependencies, python=PYTHON):
    folder.mkdir(parents=True, exist_ok=True)
    listed = ", ".join(f'"{each}"' for each in dependencies)
    (folder / "pyproject.toml").write_text(PROJECT.format(python=python, dependencies=listed) + INDEX)
    return folder


def run(command, folder, cache):
    started = time.perf_counter()
    where = dict(cwd=folder, env=settings(cache), stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    done = subprocess.run(command, text=True, timeout=500, **where)
    return time.perf_counter() - started, done


def version_of(tool):
    executable = {"Poetry": "poetry", "pip-tools": "pip-compile"}.get(tool, tool)
    said = subprocess.run([executable, "--version"], capture_output=True, text=True, check=True).stdout
    return f"{tool} {re.search(r'[0-9]+([.][0-9]+)+', said)[0]}"


def locks(scratch):
    """Tool -> the text of its lock file."""
    found = {}
    for tool, command in commands(SMALL).items():
        folder = project(scratch / f"lock {tool}", SMALL)
        _, done = run(command, folder, scratch / "cache")
        assert done.returncode == 0, (tool, done.stdout[-2000:])
        found[tool] = (folder / FILES[tool]).read_text()
    return found


def conflicts(scratch):
    """Tool -> its words, without a traceback and what is of this machine."""
    found = {}
    for tool, command in commands(CONFLICT).items():
        loud = [word for word in command if word != "--quiet"]
        _, done = run(loud, project(scratch / f"conflict {tool}", CONFLICT), scratch / "cache")
        assert done.returncode != 0, tool
        found[tool] = words(done.stdout)
    return found


def words(said):
    """From the line on that says that it does not go, to the end or a traceback."""
    lines = [line.strip() for line in said.partition("Traceback")[0].splitlines()]
    kept = [line for line in lines if line and not re.match("WARNING|ERROR: ResolutionImp|Using CPython", line)]
    first = next(place for place, line in enumerate(kept) if re.search("error:|ERROR:|Because", line))
    return "\n".join(kept[first:])


def needed_by_torch(scratch):
    """Rows: a package, on which platforms it is installed, and the bytes of its wheel there."""
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    folder = project(scratch / "torch", TORCH, f"=={version}.*")
    _, done = run(commands(TORCH)["uv"], folder, scratch / "cache")
    assert done.returncode == 0, done.stdout
    packages = {each["name"]: each for each in tomllib.loads((folder / "uv.lock").read_text())["package"]}
    tag, rows = f"cp{sys.version_info.major}{sys.version_info.minor}", []
    for platform, ending in PLATFORMS.items():
        for name in reached(packages, platform):
            size = wheel_bytes(packages[name], ending, tag)
            rows.append({"platform": platform, "package": name, "version": packages[name]["version"], "bytes": size})
    return rows


def reached(packages, platform):
    """Names that the project needs there, itself left out."""
    system, _, machine = platform.partition(", ")
    values = {"Linux": ("linux", "Linux"), "macOS": ("darwin", "Darwin"), "Windows": ("win32", "Windows")}[system]
    machine = {"x86-64": "x86_64", "arm64": "arm64", "": "AMD64"}[machine]
    environment = {"sys_platform": values[0], "platform_system": values[1], "platform_machine": machine}
    found, left = [], ["small"]
    while left:
        package = packages[left.pop()]
        for each in package.get("dependencies", []):
            if each["name"] not in found and holds(each.get("marker"), environment):
                found.append(each["name"])
                left.append(each["name"])
            for extra in each.get("extra", []):
                for other in packages[each["name"]].get("optional-dependencies", {}).get(extra, []):
                    if other["name"] not in found and holds(other.get("marker"), environment):
                        found.append(other["name"])
                        left.append(other["name"])
    return sorted(found)


def holds(marker, environment):
    from packaging.markers import Marker

    return marker is None or Marker(marker).evaluate(environment)


def wheel_bytes(package, ending, tag):
    """Of the first wheel that fits: for this Python or any, and this platform or any."""
    system, machine = ending.rsplit("_", 1) if "linux" not in ending else ("linux", "x86_64")
    for wheel in package["wheels"]:
        name = wheel["url"].rsplit("/", 1)[1]
        python, _, where = name.removesuffix(".whl").split("-")[-3:]
        fits = where == "any" or (system in where and machine in where and "musl" not in where)
        if fits and (tag in python or "py3" in python or "abi3" in name):
            return wheel["size"]
    return 0


def times(scratch, often):
    """Rows: seconds of a tool, over uv's median, with a full and an empty cache."""
    ways = commands(SMALL) | {"pip-tools, no hashes": COMPILE}
    seconds = {}
    for cache, runs in {"full": often, "empty": max(1, often - 2)}.items():
        for tool, command in ways.items():
            seconds[tool, cache] = []
            if cache == "full":
                run(command, project(scratch / "warm up", SMALL), scratch / "full")
            for turn in range(runs):
                folder = project(scratch / f"times {tool} {cache} {turn}", SMALL)
                place = scratch / "full" if cache == "full" else scratch / f"empty {tool} {turn}"
                spent, done = run(command, folder, place)
                assert done.returncode == 0, (tool, done.stdout[-2000:])
                seconds[tool, cache].append(spent)
                if cache == "empty":
                    shutil.rmtree(place, ignore_errors=True)
    rows = []
    for (tool, cache), mine in seconds.items():
        unit = statistics.median(seconds["uv", cache])
        of = {"times_uv": statistics.median(mine), "least": min(mine), "most": max(mine)}
        rows.append({"tool": tool, "cache": cache} | {name: f"{value / unit:.1f}" for name, value in of.items()})
    return rows


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--runs", type=int, default=5)
    chosen = parser.parse_args()
    about = {tool: {"version": version_of(tool), "date": date.today().isoformat()} for tool in FILES}
    with tempfile.TemporaryDirectory() as made:
        scratch = Path(made)
        texts, said, torch = locks(scratch), conflicts(scratch), needed_by_torch(scratch)
        taken = times(scratch, chosen.runs)
    for row in taken:
        row |= about[row["tool"].partition(",")[0]]
        print(row)
    for tool, text in said.items():
        print(f"--- {about[tool]['version']}\n{text}")
    for platform in PLATFORMS:
        rows = [row for row in torch if row["platform"] == platform]
        print(f"torch on {platform}: {len(rows)} packages, {sum(row['bytes'] for row in rows):,} bytes")
    if chosen.write:
        project(FOLDER, SMALL)
        for tool, text in texts.items():
            (FOLDER / FILES[tool]).write_text(text)
        (FOLDER / "export.txt").write_text(subprocess.check_output(EXPORT, cwd=FOLDER, text=True))
        csv_rows.write(FOLDER / "conflicts.csv", [{"tool": tool, "words": said[tool]} | about[tool] for tool in said])
        csv_rows.write(
            FOLDER / "torch.csv",
            [row | {"resolved_by": about["uv"]["version"], "date": about["uv"]["date"]} for row in torch],
        )
        csv_rows.write(FOLDER / "times.csv", taken)


if __name__ == "__main__":
    main()
