"""The doctor: each line when the thing is here, and what it says to do when it is not."""

import subprocess
import sys

import ipywidgets
import jupyter_client.kernelspec
import jupyter_core.paths
import pytest
import torch
import torch.distributed as dist

from tinydist import torch_versions
from tinydist.__main__ import main
from tinydist.diagnose import doctor


def test_everything_is_here(capsys):
    assert main(["doctor"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[1] for line in lines[:-1]] == list(doctor.CHECKS)
    assert {line.split()[0] for line in lines[:-1]} <= {"ok", "fine"}
    assert lines[-1] == "All checks passed."


def test_nothing_but_python_is_here():
    """As where torch was not installed: the doctor must start all the same."""
    program = (
        "import runpy, sys\n"
        "for name in ['torch', 'ipykernel', 'ipywidgets', 'matplotlib']: sys.modules[name] = None\n"
        "sys.argv = ['tinydist', 'doctor']\n"
        "runpy.run_module('tinydist', run_name='__main__')\n"
    )
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert run.returncode == 1, run.stderr
    assert run.stdout.splitlines()[1].startswith("missing  torch")
    assert run.stdout.splitlines()[-1] == "Missing: torch, simulator, gloo, nccl, GPUs, kernel, widgets, matplotlib."


def without_module(name):
    return lambda patch: patch.setitem(sys.modules, name, None)


def no_network(*_):
    raise RuntimeError("unable to resolve hostname\nand a long stack")


def no_kernel(*_):
    raise jupyter_client.kernelspec.NoSuchKernel("python3")


def other_kernel(*_):
    return jupyter_client.kernelspec.KernelSpec(argv=["/other/python"])


KERNELS = jupyter_client.kernelspec.KernelSpecManager

MISSING = [
    ("Python", lambda p: p.setattr(sys, "version_info", (3, 9, 1)), "3.9.1 is too old: install 3.11"),
    ("torch", without_module("torch"), "make lab"),
    ("torch", lambda p: p.setattr(torch, "__version__", "2.9.1+cpu"), "2.9.1+cpu is too old, 2.12 is needed"),
    ("torch", lambda p: p.setattr(dist, "is_available", lambda: False), "built without torch.distributed"),
    ("simulator", lambda p: p.setattr(dist, "all_reduce", lambda _: None), "install one of those, for example"),
    ("gloo", lambda p: p.setattr(dist, "is_gloo_available", lambda: False), "torch is built without gloo"),
    ("gloo", lambda p: p.setattr(dist, "ProcessGroupGloo", no_network), "hostname; try `export GLOO_SOCKET"),
    ("kernel", without_module("ipykernel"), "make lab"),
    ("kernel", lambda p: p.setattr(KERNELS, "get_kernel_spec", no_kernel), "Jupyter has no kernel python3"),
    ("kernel", lambda p: p.setattr(KERNELS, "get_kernel_spec", other_kernel), "another Python, /other"),
    ("widgets", without_module("ipywidgets"), "make lab"),
    ("widgets", lambda p: p.setattr(jupyter_core.paths, "jupyter_path", lambda _: []), "jupyterlab_widgets"),
    ("matplotlib", without_module("matplotlib"), "make lab"),
    ("course", lambda p: p.setattr("os.access", lambda *_: False), "exercises is not writable: `"),
]


@pytest.mark.parametrize("name, break_it, advice", MISSING)
def test_missing(monkeypatch, capsys, name, break_it, advice):
    with monkeypatch.context() as patch:
        break_it(patch)
        finding = doctor.look(doctor.CHECKS[name])
    assert finding.state == "missing"
    assert advice in finding.text


def test_one_missing_thing_is_failure(monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    assert main(["doctor"]) == 1
    assert capsys.readouterr().out.splitlines()[-1] == "Missing: matplotlib."


def test_gpus_and_nccl_are_not_needed(monkeypatch, capsys):
    monkeypatch.setattr(dist, "is_nccl_available", lambda: False)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 0)
    assert doctor.check_nccl().state == doctor.check_gpus().state == "fine"
    assert main(["doctor"]) == 0


def test_elsewhere_no_course_is_needed(monkeypatch):
    monkeypatch.chdir("/")
    assert doctor.check_course().state == "fine"


def test_gpus_are_named(monkeypatch):
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda index: f"GPU {index}")
    assert doctor.check_gpus() == doctor.Finding("ok", "GPU 0, GPU 1")


@pytest.mark.parametrize("version", [f"{torch_versions.OLDEST}.0", f"{torch_versions.NEWEST}.9+cu132"])
def test_a_tested_torch(monkeypatch, version):
    monkeypatch.setattr(torch, "__version__", version)
    assert doctor.check_torch() == doctor.Finding("ok", version)


def test_a_torch_that_is_newer_than_any_that_was_tested(monkeypatch, capsys):
    monkeypatch.setattr(torch, "__version__", "2.99.0")
    text = f"2.99.0 is newer than the tested versions: {torch_versions.TESTED}"
    assert main(["doctor"]) == 0
    assert f"untested torch       {text}" in capsys.readouterr().out.splitlines()


def test_versions_are_shown():
    assert doctor.check_widgets().text == f"ipywidgets {ipywidgets.__version__}"
