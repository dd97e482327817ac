"""JupyterLab as `make lab` starts it: where it opens, what it serves, and what it writes."""

import json
import os
import posixpath
import re
import shutil
import signal
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path
from urllib.error import HTTPError
from urllib.parse import unquote, urlsplit
from urllib.request import urlopen

import nbformat
import pytest
from browser import chromium
from test_notebooks import NOTEBOOKS, ROOT

LINK = re.compile(r"\]\(([^)\s]+)\)")


@contextmanager
def make_lab(folder, home, options=""):
    """The URL that `make lab` prints in ``folder``. The server is gone afterwards."""
    own = {name: str(home / name) for name in ("JUPYTER_CONFIG_DIR", "JUPYTER_DATA_DIR", "JUPYTER_RUNTIME_DIR")}
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    inherited = {name: value for name, value in os.environ.items() if "MAKE" not in name and name != "MFLAGS"}
    options = f"OPTIONS=--no-browser --ip=127.0.0.1 --port=0 {options}"  # a port that is free
    command = ["make", "--old-file=.venv/made", "lab", options]
    server = subprocess.Popen(
        command,
        cwd=folder,
        env=inherited | own | {"PATH": path},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    log = []
    try:
        for line in server.stdout:
            log.append(line)
            if found := re.search(r"http://127\.0\.0\.1:\S+", line):
                break
        else:
            pytest.fail("".join(log))
        yield found[0]
    finally:
        os.killpg(server.pid, signal.SIGTERM)
        server.stdout.read()  # until all have closed it
        server.wait()


@pytest.fixture(scope="module")
def url(tmp_path_factory):
    with make_lab(ROOT, tmp_path_factory.mktemp("jupyter")) as url:
        yield urlsplit(url)


def links(path):
    """The relative ones of a notebook, from the root."""
    for cell in nbformat.read(ROOT / path, as_version=4).cells:
        for link in LINK.findall(cell.source) if cell.cell_type == "markdown" else ():
            if not urlsplit(link).scheme and urlsplit(link).path:
                yield posixpath.normpath(posixpath.join(path.parent.as_posix(), unquote(urlsplit(link).path)))


def test_it_opens_the_first_notebook(url):
    assert url.path == "/lab/tree/notebooks/00_start_here.ipynb"


def test_every_link_of_a_notebook_leads_to_a_file_that_is_served(url):
    found = {link for path in NOTEBOOKS for link in links(path)}
    assert {"exercises", "notebooks", "tinydist"} <= {link.split("/")[0] for link in found}
    assert [link for link in sorted(found) if not is_served(url, link)] == []


def is_served(url, link):
    try:
        with urlopen(f"http://{url.netloc}/api/contents/{link}?content=0&{url.query}", timeout=60) as answer:
            return json.load(answer)["type"] in ("notebook", "file")
    except HTTPError:
        return False


# With a browser.


@pytest.fixture
def page(tmp_path):
    with chromium(tmp_path / "chromium") as page:
        yield page


@pytest.fixture
def copy(tmp_path):
    """What JupyterLab needs of this folder, to be written to; of notebooks, without what it writes into them."""
    for name in ("Makefile", "jupyter_lab_config.py"):
        shutil.copy(ROOT / name, tmp_path)
    shutil.copytree(ROOT / "jupyter_lab_settings", tmp_path / "jupyter_lab_settings")
    for path in NOTEBOOKS:
        notebook = nbformat.read(ROOT / path, as_version=4)
        del notebook.metadata["language_info"]
        notebook.metadata.kernelspec.display_name = "Another"
        (tmp_path / path).parent.mkdir(exist_ok=True)
        nbformat.write(notebook, tmp_path / path)
    return tmp_path


OPEN_AND_SAVE = """(async () => {
    const open = await jupyterapp.commands.execute("docmanager:open", {path: "%s", factory: "Notebook"});
    await open.sessionContext.ready;
    const kernel = open.sessionContext.session.kernel;
    await Promise.all([kernel.info, kernel.spec]);
    await open.context.save();
    const too_wide = [...open.node.querySelectorAll(".jp-RenderedMarkdown, .cm-scroller")]
        .filter(each => each.scrollWidth > each.clientWidth + 1)
        .map(each => each.innerText.slice(0, 60));
    await open.sessionContext.shutdown();
    open.dispose();
    return too_wide;
})()"""


@pytest.mark.exhaustive
def test_a_notebook_that_is_opened_fits_the_page_and_saved_is_as_it_was(copy, page, tmp_path):
    with make_lab(copy, tmp_path, "--LabApp.expose_app_in_browser=True") as url:
        page.open(url)
        page.run("new Promise(done => setInterval(() => window.jupyterapp?.restored.then(done), 100))")
        too_wide = {path: page.run(OPEN_AND_SAVE % path.as_posix()) for path in NOTEBOOKS}
    assert {path: cells for path, cells in too_wide.items() if cells} == {}
    assert [path for path in NOTEBOOKS if (copy / path).read_bytes() != (ROOT / path).read_bytes()] == []
