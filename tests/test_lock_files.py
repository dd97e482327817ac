"""Lock files are read as uv reads them: the stored ones of notebook 22, without a network."""

import csv
import re
import tomllib
from pathlib import Path

import pytest
from packaging.markers import Marker

from benchmarks import installs, locks
from benchmarks.lock_files import MACHINES, download, environment, installed, words

FOLDER = Path(__file__).parents[1] / "notebooks" / "data" / "22_locks"


@pytest.fixture
def lock():
    return tomllib.loads((FOLDER / "uv.lock").read_text())


def rows(name):
    with (FOLDER / name).open() as file:
        return list(csv.DictReader(file))


@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize("python", ["3.11.9", "3.12.1", "3.14.0"])
def test_what_is_installed_is_what_uv_exports(lock, machine, python):
    pins = set()
    for line in (FOLDER / "export.txt").read_text().splitlines():
        pin, _, marker = line.partition(" ; ")
        if not marker or Marker(marker).evaluate(environment(machine, python)):
            pins.add(pin)
    found = installed(lock, machine, python)
    assert {f"{name}=={package['version']}" for name, package in found.items()} == pins
    assert ("colorama" in found) == (machine == "Windows")


def test_extras_bring_their_packages_and_circles_end():
    def package(name, needs=(), **more):
        return {"name": name, "version": "1", "source": {}, "dependencies": list(needs)} | more

    root = package("small", [{"name": "a", "extra": ["fast"]}], source={"virtual": "."})
    a = package("a", [{"name": "c"}], **{"optional-dependencies": {"fast": [{"name": "b"}], "slow": [{"name": "d"}]}})
    lock = {"package": [root, a, package("b"), package("c", [{"name": "a"}]), package("d")]}
    assert list(installed(lock, "Windows", "3.12.1")) == ["a", "b", "c"]


@pytest.mark.parametrize(
    "machine, python, ending",
    [
        ("Linux, x86-64", "3.11.9", r"cp311-cp311-manylinux.*_x86_64"),
        ("macOS, arm64", "3.12.1", r"cp312-cp312-macosx_.*_arm64"),
        ("Windows", "3.13.0", r"cp313-cp313-win_amd64"),
    ],
)
def test_the_wheel_is_for_this_python_and_this_machine(lock, machine, python, ending):
    numpy = installed(lock, machine, python)["numpy"]
    assert re.search(rf"{ending}\.whl$", download(numpy, machine, python)["url"])


def test_without_a_wheel_it_is_the_source_and_without_that_an_error(lock):
    newer = next(each for each in lock["package"] if (each["name"], each["version"]) == ("numpy", "2.5.5"))
    assert download(newer, "Windows", "3.11.9")["url"].endswith("numpy-2.5.5.tar.gz")
    del newer["sdist"]
    with pytest.raises(ValueError, match=re.escape("numpy 2.5.5 has no file for Windows and Python 3.11.9")):
        download(newer, "Windows", "3.11.9")


def test_of_what_a_tool_says_the_conflict_is_kept():
    said = (
        "WARNING: a\nUsing CPython 3.11\n\n  × error: b\n  requests needs c\nTraceback (most recent call last):\n  d\n"
    )
    assert words(said) == "× error: b\nrequests needs c"
    for row in rows("conflicts.csv"):
        assert words(row["words"]) == row["words"]


def test_torch_is_a_download_on_each_platform_and_a_row_of_the_sums():
    needed = rows("torch.csv")
    assert {row["platform"] for row in needed} == set(MACHINES)
    on_linux = [int(row["bytes"]) for row in needed if row["platform"] == installs.LINUX]
    summed = next(row for row in rows("installs.csv") if row["asked"] == installs.TORCH)
    assert (int(summed["packages"]), int(summed["bytes"])) == (len(on_linux), sum(on_linux))


def test_each_tool_that_is_asked_for_has_its_row():
    stored = [(row["stage"], row["asked"]) for row in rows("installs.csv")]
    asked = [(stage, each) for stage, names in installs.ASKED.items() for each in names]
    assert stored == [*asked, (stored[-1][0], installs.REFUSED)]


def test_the_stored_project_is_that_of_the_benchmark(tmp_path):
    folder = locks.project(tmp_path, locks.SMALL)
    assert (folder / "pyproject.toml").read_text() == (FOLDER / "pyproject.toml").read_text()
    assert all((FOLDER / name).exists() for name in locks.FILES.values())


def test_no_other_index_is_asked(monkeypatch, tmp_path):
    monkeypatch.setenv("PIP_INDEX_URL", "https://elsewhere")
    used = locks.settings(tmp_path)
    assert "PIP_INDEX_URL" not in used and {used[name] for name in locks.CACHES} == {str(tmp_path)}
