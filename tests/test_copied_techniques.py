"""A technique's folder works in a project that has torch, and of tinydist only what stands here."""

import shutil
import subprocess
import sys
from pathlib import Path

import tinydist

PACKAGE = Path(tinydist.__file__).parent
ALL_NEED = ("rules.py", "reduce.py", "annotate.py", "torch_versions.py", "torch_internals")
NEEDED = {
    "attention": (),
    "collectives": ("hardware",),
    "compilers": (),
    "context_parallel": ("attention", "collectives", "hardware"),
    "data_parallel": ("collectives", "hardware"),
    "experts": ("checkpoint", "collectives", "hardware"),
    "pipeline_parallel": ("collectives", "hardware"),
    "precision": (),
    "tensor_parallel": ("collectives", "hardware"),
    "zero": ("checkpoint", "collectives", "hardware"),
}


def test_each_is_copied_with_what_it_needs(tmp_path):
    for technique, needed in NEEDED.items():
        project = tmp_path / f"with_{technique}"
        project.mkdir()
        (project / "__init__.py").touch()
        for name in (*ALL_NEED, *needed, technique):
            copy = shutil.copytree if (PACKAGE / name).is_dir() else shutil.copy
            copy(PACKAGE / name, project / name)
    imports = "".join(f"import with_{technique}.{technique}\n" for technique in NEEDED)
    asks = "import sys\nprint([name for name in sys.modules if name.startswith('tinydist')])"
    run = subprocess.run([sys.executable, "-c", imports + asks], cwd=tmp_path, capture_output=True, text=True)
    assert run.stdout == "[]\n", run.stderr
