"""How JupyterLab serves the course: `jupyter lab --config=jupyter_lab_config.py`, here or in a copy of it."""

import platform
import warnings
from pathlib import Path

from jupyter_server.services.contents.largefilemanager import AsyncLargeFileManager

HERE = Path(__file__).resolve().parent
SETTINGS = str(HERE / "jupyter_lab_settings")


def as_everybody_saves_it(model, **_):
    """Without the version of Python, and without what console.progress_message leaves when it has vanished."""
    if model["type"] != "notebook":
        return
    model["content"]["metadata"].get("language_info", {}).pop("version", None)
    for cell in model["content"]["cells"]:
        if "outputs" in cell:
            cell["outputs"] = [output for output in cell["outputs"] if output.get("data") != {}]


class Files(AsyncLargeFileManager):
    async def get(self, *arguments, **options):
        """With the version of Python, which JupyterLab would add: it would take the notebook for one that is edited."""
        model = await super().get(*arguments, **options)
        if model["type"] == "notebook" and model["content"] and "language_info" in model["content"]["metadata"]:
            model["content"]["metadata"]["language_info"]["version"] = platform.python_version()
        return model


c = get_config()  # noqa: F821 (Jupyter's own)
c.LabApp.default_url = "/lab/tree/notebooks/00_start_here.ipynb"  # opened as a file, its folder would be the root
c.LabApp.app_settings_dir = SETTINGS  # code wraps, no news over it
c.LabApp.custom_css = True  # dark pictures, names of tabs: custom.css
c.ServerApp.tornado_settings = {"static_custom_path": [SETTINGS]}
c.ServerApp.contents_manager_class = Files
if Path.cwd() != HERE:
    c.ContentsManager.hide_globs.extend(["tests"])  # in a copy they are there for a link or two
c.ContentsManager.pre_save_hook = as_everybody_saves_it
warnings.filterwarnings("ignore", "Overriding existing pre_save_hook")  # Jupyter applies this file twice
