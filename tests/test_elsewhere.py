"""The course on other machines: which PyTorch `make` asks for, Binder, dev containers, Colab."""

import json
import os
import re
import shutil
import subprocess
from types import SimpleNamespace

import IPython
import pytest
from ipykernel.compiler import get_file_name
from packaging.requirements import Requirement
from test_project import PROJECT, ROOT

from tinydist.simulator import call_sites

# Stand-ins for what the recipe asks: a python that makes a .venv whose pip writes down what it was told
PYTHON = """#!/bin/sh
[ "$2" = venv ] && mkdir -p .venv/bin && cp pip .venv/bin
true
"""
PIP = """#!/bin/sh
case "$*" in "config list") echo "$TOLD" ;; *"$REFUSED"*) echo "$*" >>asked; exit 1 ;; *) echo "$*" >>asked ;; esac
"""
CPU = "https://download.pytorch.org/whl/cpu"


@pytest.fixture
def asked(tmp_path):
    """What pip is asked for on such a machine, one line for each call."""
    for name in ("Makefile", "pyproject.toml", "constraints.txt"):
        shutil.copy(ROOT / name, tmp_path)

    def asked(system="Linux", driver=False, told="", refused="nothing"):
        programs = {"python": PYTHON, "pip": PIP, "uname": f"#!/bin/sh\necho {system}\n"}
        programs["nvidia-smi"] = f"#!/bin/sh\nexit {0 if driver else 9}\n"
        for name, program in programs.items():
            (tmp_path / name).write_text(program)
            (tmp_path / name).chmod(0o755)
        environment = os.environ | {"PATH": f"{tmp_path}:{os.environ['PATH']}", "TOLD": told, "REFUSED": refused}
        command = ["make", "-s", ".venv/made", f"PYTHON={tmp_path}/python"]
        subprocess.run(command, cwd=tmp_path, env=environment, check=True, capture_output=True)
        return (tmp_path / "asked").read_text().splitlines()

    return asked


def test_linux_without_a_driver_gets_the_build_without_cuda_and_nothing_else_from_its_index(asked):
    torch, everything = asked()
    assert torch.startswith("install") and torch.endswith(f"-c constraints.txt --no-deps --index-url {CPU} torch")
    assert everything.endswith("-c constraints.txt -e .[test]")


def test_where_that_index_cannot_be_reached_pypis_build_is_installed(asked):
    assert [CPU in line for line in asked(refused=CPU)] == [True, False]


@pytest.mark.parametrize(
    "machine",
    [
        {"driver": True},
        {"system": "Darwin"},
        {"told": "global.index-url='https://mirror.example/simple'"},
        {"told": ":env:.extra-index-url='https://mirror.example/simple'"},
        {"told": ":env:.no-index='1'"},
        {"told": "global.find-links='/wheels'"},
    ],
    ids=lambda machine: " ".join(map(str, machine.values())),
)
def test_another_machine_gets_what_pip_is_told(asked, machine):
    (everything,) = asked(**machine)
    assert everything.endswith("-e .[test]") and CPU not in everything


def test_a_failed_installation_is_not_taken_for_done(asked):
    with pytest.raises(subprocess.CalledProcessError):
        asked(refused="[test]")


def test_binder_installs_the_course_as_it_was_tested():
    folder = ROOT / ".binder"
    lines = [line for line in (folder / "requirements.txt").read_text().splitlines() if not line.startswith("#")]
    options = dict(line.split() for line in lines)
    assert options["--extra-index-url"] == CPU
    assert (folder / options["--constraint"]).resolve() == ROOT / "constraints.txt"  # pip looks beside the file
    assert options["--editable"] == "."  # and here in the folder where it runs, which is the repository's
    name, version = (folder / "runtime.txt").read_text().strip().split("-")
    assert name == "python" and version in Requirement(f"python{PROJECT['requires-python']}").specifier


def dev_container():
    text = (ROOT / ".devcontainer" / "devcontainer.json").read_text()
    return json.loads(re.sub(r"^\s*//.*$", "", text, flags=re.MULTILINE))


def test_the_dev_container_is_made_by_make_and_forwards_its_port():
    container = dev_container()
    command, target = container["postCreateCommand"].split()
    assert command == "make" and f"\n{target}: " in (ROOT / "Makefile").read_text()
    assert container["forwardPorts"] == [8888]  # JupyterLab's
    assert set(container["portsAttributes"]) == {"8888"}


ORIGINS = {"https://fuzzy-goat-8888.app.github.dev": True, "https://app.github.dev.else.where": False}


@pytest.mark.parametrize("origin, may", ORIGINS.items(), ids=["its own", "another"])
def test_make_lab_in_a_codespace_lets_its_pages_talk_to_kernels(origin, may):
    """Codespaces shows a port under another name than the server sees: a foreign page, unless it is allowed."""
    # Says what JupyterLab is told
    lab = ["make", "-s", "lab", "-o", ".venv/made", "COURSE=.", "AS_ROOT=", r"IN_VENV=printf %s\\n"]
    environment = os.environ | dev_container()["containerEnv"]
    shown = subprocess.run(lab, cwd=ROOT, env=environment, capture_output=True, text=True, check=True)
    (pattern,) = re.findall(r"allow_origin_pat=(.*)", shown.stdout)
    assert bool(re.fullmatch(pattern, origin)) == may


def test_a_cell_has_its_number_in_colabs_ipython_too(monkeypatch):
    """IPython 7 has no names for cells; ipykernel makes the name of a cell's file from its text."""
    compiler = SimpleNamespace(get_code_name=lambda raw, code, number: get_file_name(raw))
    inputs = SimpleNamespace(input_hist_raw=["", "again()", "once()", "again()"])
    shell = SimpleNamespace(compile=compiler, history_manager=inputs)
    monkeypatch.setattr(IPython, "get_ipython", lambda: shell)
    titles = {text: call_sites._title(get_file_name(text)) for text in ("once()", "again()", "never()")}
    assert titles == {"once()": "Cell In[2]", "again()": "Cell In[3]", "never()": get_file_name("never()")}


def test_readme_names_the_wheel_that_make_dist_builds():
    wheels = set(re.findall(r"\S+\.whl", (ROOT / "docs" / "installation.md").read_text()))
    assert {wheel.split("/")[-1] for wheel in wheels} == {f"tinydist-{PROJECT['version']}-py3-none-any.whl"}
