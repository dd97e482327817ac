"""Check the installation: one line per check, with what to do where something is missing.

A laptop needs Python, torch with gloo, the Jupyter kernel, widgets and matplotlib. GPUs and nccl are for real
ranks on GPUs; without them everything else works.
"""

import os
import sys
from dataclasses import dataclass
from datetime import timedelta

from .. import torch_versions

OLDEST_PYTHON = (3, 11)
INSTALL = "install it with `make lab` or `pip install -c constraints.txt -e .`"


@dataclass(frozen=True)
class Finding:
    state: str  # "ok", "fine" (not here, and not needed), "untested" or "missing"
    text: str  # what was found, or what to do


def examine():
    """Print the findings; true if nothing is missing."""
    findings = {name: look(check) for name, check in CHECKS.items()}
    for name, finding in findings.items():
        print(f"{finding.state:<8} {name:<11} {finding.text}")
    absent = [name for name, finding in findings.items() if finding.state == "missing"]
    print(f"Missing: {', '.join(absent)}." if absent else "All checks passed.")
    return not absent


def look(check):
    try:
        return check()
    except Exception as error:  # it is not there, a library that it is made of does not load, or it is of another time
        return Finding("missing", f"{error}; {INSTALL}")


def check_python():
    version = dotted(sys.version_info[:3])
    if sys.version_info[:2] < OLDEST_PYTHON:
        return Finding("missing", f"{version} is too old: install {dotted(OLDEST_PYTHON)} or later")
    return Finding("ok", version)


def check_torch():
    import torch

    version = torch.__version__
    if torch_versions.too_old(version):
        return Finding("missing", f"{version} is too old, {torch_versions.OLDEST} is needed; {INSTALL}")
    if not torch.distributed.is_available():
        return Finding("missing", f"{version} is built without torch.distributed; {INSTALL}")
    if torch_versions.untested(version):
        return Finding("untested", f"{version} is newer than the tested versions: {torch_versions.TESTED}")
    return Finding("ok", version)


def check_simulator():
    from ..simulator.self_test import self_test

    try:
        self_test()
    except RuntimeError as error:
        return Finding("missing", str(error))
    return Finding("ok", "simulated ranks reduce, make groups and send messages")


def check_gloo():
    import torch.distributed as dist

    if not dist.is_gloo_available():
        return Finding("missing", f"torch is built without gloo; {INSTALL}")
    try:
        dist.ProcessGroupGloo(dist.HashStore(), 0, 1, timedelta(seconds=5))
    except RuntimeError as error:
        loopback = "lo0" if sys.platform == "darwin" else "lo"
        return Finding("missing", f"{str(error).splitlines()[0]}; try `export GLOO_SOCKET_IFNAME={loopback}`")
    return Finding("ok", "real ranks on this machine")


def check_nccl():
    import torch.distributed as dist

    if not dist.is_nccl_available():
        return Finding("fine", "not in this build of torch; needed only for real ranks on GPUs")
    return Finding("ok", "real ranks on GPUs")


def check_gpus():
    import torch

    names = [torch.cuda.get_device_name(index) for index in range(torch.cuda.device_count())]
    if not names:
        return Finding("fine", "none; needed only for real ranks on GPUs")
    return Finding("ok", ", ".join(names))


def check_kernel():
    import ipykernel
    from jupyter_client.kernelspec import KernelSpecManager, NoSuchKernel

    repair = "repair it with `python -m ipykernel install --sys-prefix`"
    try:
        python = KernelSpecManager().get_kernel_spec("python3").argv[0]
    except NoSuchKernel:
        return Finding("missing", f"Jupyter has no kernel python3; {repair}")
    # A bare `python` is the Python that Jupyter runs on.
    if os.path.isabs(python) and python != sys.executable:
        return Finding("missing", f"the kernel python3 is another Python, {python}; {repair}")
    return Finding("ok", f"ipykernel {ipykernel.__version__}")


def check_widgets():
    import ipywidgets
    from jupyter_core.paths import jupyter_path

    extension = os.path.join("@jupyter-widgets", "jupyterlab-manager")
    if not any(os.path.isdir(os.path.join(folder, extension)) for folder in jupyter_path("labextensions")):
        repair = "`pip install --force-reinstall jupyterlab_widgets`, then reload the page"
        return Finding("missing", f"JupyterLab has no widget extension; {repair}")
    return Finding("ok", f"ipywidgets {ipywidgets.__version__}")


def check_matplotlib():
    import matplotlib

    return Finding("ok", matplotlib.__version__)


def check_course():
    from ..syllabus.progress import folder
    from ..syllabus.progress_summary import unwritable

    exercises = folder()
    if exercises is None:
        return Finding("fine", "none in this folder; `make lab` copies it into the folder course of a clone")
    troubles = filter(None, map(unwritable, [exercises, *sorted(exercises.glob("*.ipynb"))]))
    if trouble := next(troubles, None):
        return Finding("missing", trouble)
    return Finding("ok", f"{exercises.parent}, writable")


def dotted(version):
    return ".".join(map(str, version))


CHECKS = {
    "Python": check_python,
    "torch": check_torch,
    "simulator": check_simulator,
    "gloo": check_gloo,
    "nccl": check_nccl,
    "GPUs": check_gpus,
    "kernel": check_kernel,
    "widgets": check_widgets,
    "matplotlib": check_matplotlib,
    "course": check_course,
}
