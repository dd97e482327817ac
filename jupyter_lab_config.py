"""How JupyterLab serves this folder: `jupyter lab --config=jupyter_lab_config.py`."""

import warnings
from pathlib import Path


def of_any_python(model, **_):
    """A notebook is saved without the version of Python, which else would change with everybody who opens it."""
    if model["type"] == "notebook":
        model["content"]["metadata"].get("language_info", {}).pop("version", None)


c = get_config()  # noqa: F821 (Jupyter's own)
c.LabApp.default_url = "/lab/tree/notebooks/00_start_here.ipynb"  # opened as a file, its folder would be the root
c.LabApp.app_settings_dir = str(Path(__file__).parent / "jupyter_lab_settings")  # code wraps, no news over it
c.ContentsManager.pre_save_hook = of_any_python
warnings.filterwarnings("ignore", "Overriding existing pre_save_hook")  # Jupyter applies this file twice
