"""What `make dist` builds, installed where nothing of this folder is, and used."""

import os
import shutil
import subprocess
import sys
import sysconfig
import venv
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent


def run(*command, cwd):
    # What a process of this environment is told, one of another must not be
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "VIRTUAL"))}
    done = subprocess.run(list(map(str, command)), cwd=cwd, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.exhaustive
def test_the_wheel_brings_the_course_and_a_command(tmp_path):
    sources, home = tmp_path / "sources", tmp_path / "home"
    ignored = shutil.ignore_patterns(".git", ".venv*", "dist", "build", "course", "__pycache__", "progress.json")
    shutil.copytree(ROOT, sources, ignore=ignored)
    run("make", "dist", f"PYTHON={sys.executable}", cwd=sources)
    (wheel,), (source,) = (sources / "dist").glob("*.whl"), (sources / "dist").glob("*.tar.gz")

    venv.create(home / "venv", with_pip=True)
    commands = home / "venv" / ("Scripts" if os.name == "nt" else "bin")
    run(commands / "python", "-m", "pip", "install", "--no-deps", wheel, cwd=home)
    # What it depends on comes from here: a path is no place for editable installs
    packages = run(commands / "python", "-c", "import sysconfig; print(sysconfig.get_path('purelib'))", cwd=home)
    (Path(packages.strip()) / "others.pth").write_text(sysconfig.get_path("purelib"))
    where = run(commands / "python", "-c", "import tinydist; print(tinydist.__file__)", cwd=home)
    assert Path(where.strip()).is_relative_to(home)

    run(commands / "tinydist", "copy-course", "course", cwd=home)
    course = home / "course"
    assert run(commands / "tinydist", "next", cwd=course).startswith("Next: average_uneven, ")
    shutil.copy(course / "solutions" / "00_start_here.ipynb", course / "exercises")
    assert "mended_loop: passed" in run(commands / "tinydist", "check", "mended_loop", cwd=course)
    assert "  done mended_loop" in run(commands / "tinydist", "list", cwd=course)
    assert (course / "exercises" / "progress.json").exists()
    assert "2.5" in run(commands / "python", "-c", PROGRAM, cwd=home) and source.stat().st_size > 10**6


PROGRAM = """
import tinydist, torch, torch.distributed as dist
def average():
    x = torch.tensor(dist.get_rank() + 1.0)
    dist.all_reduce(x)
    return x.item() / 4
print(tinydist.launch(average, 4).results)
"""
