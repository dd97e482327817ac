"""The plugin beside what else pytest does: xdist, -k, --lf; and what it loads."""

import tomllib
from importlib import import_module
from pathlib import Path

pytest_plugins = ["pytester"]
ROOT = Path(__file__).parents[2]

SIZES = """
@pytest.mark.ranks(1, 2, 4)
def test_sizes(rank, world_size):
    dist.barrier()
    assert world_size != 2 or rank == 0
"""


def test_beside_xdist(tests):
    ran = tests(SIZES, "-p", "xdist", "-n", "1", method="subprocess")  # one worker: each loads torch
    assert ran.outcomes == {"passed": 2, "failed": 1}
    assert "E       on rank 1 of 2" in ran.text and "FAILED test_it.py::test_sizes[ranks2] - assert (" in ran.text


def test_selections(tests):
    assert tests(SIZES, "-k", "ranks4").outcomes == {"passed": 1, "deselected": 2}
    assert tests(SIZES, "-m", "ranks", "--strict-markers").outcomes == {"passed": 2, "failed": 1}
    assert tests(SIZES, "-p", "cacheprovider", "-x").outcomes == {"passed": 1, "failed": 1}
    assert tests(SIZES, "-p", "cacheprovider", "--lf").outcomes == {"failed": 1}


def test_torch_is_not_loaded_without_ranks(tests):
    source = "import sys\ndef test_it(): assert 'tinydist.testing.plugin' in sys.modules and 'torch' not in sys.modules"
    assert tests(source, imports="", method="subprocess").outcomes == {"passed": 1}


def test_help(tests):
    ran = tests("", "--markers")
    assert "@pytest.mark.ranks(*sizes, **options): run the test on each of so many ranks" in ran.text


def test_under_torchrun_the_job_has_its_size(tests, monkeypatch):
    monkeypatch.setenv("RANK", "0")
    monkeypatch.setenv("WORLD_SIZE", "2")
    ran = tests("@pytest.mark.ranks(4)\ndef test_it(): pass", "-rs")
    assert ran.outcomes == {"skipped": 1} and "for 4 ranks, and this job has 2" in ran.text


def test_what_is_installed_names_the_plugin():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert import_module(project["entry-points"]["pytest11"]["tinydist"]).pytest_addoption
