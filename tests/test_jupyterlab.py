"""JupyterLab as `make lab` starts it: where it opens, what it serves, and what it writes."""

import json
import os
import posixpath
import re
import runpy
import shutil
import signal
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path
from socket import create_connection
from urllib.error import HTTPError
from urllib.parse import unquote, urlsplit
from urllib.request import urlopen

import nbformat
import pytest
from browser import chromium
from test_notebooks import NOTEBOOKS, ROOT
from traitlets.config import Config

LINK = re.compile(r"\]\(([^)\s]+)\)")


def make_lab(folder, home, options="", course="course"):
    """The URL that `make lab` prints in ``folder``."""
    options = f"OPTIONS=--no-browser --ip=127.0.0.1 --port=0 {options}"  # a port that is free
    return served(["make", "--old-file=.venv/made", "lab", options, f"COURSE={course}"], folder, home)


@contextmanager
def served(command, folder, home):
    """The URL that it prints. The server is gone afterwards."""
    own = {name: str(home / name) for name in ("JUPYTER_CONFIG_DIR", "JUPYTER_DATA_DIR", "JUPYTER_RUNTIME_DIR")}
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    inherited = {name: value for name, value in os.environ.items() if "MAKE" not in name and name != "MFLAGS"}
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
        while server.poll() is None and not listens(found[0]):  # it says the address first
            pass
        yield found[0]
    finally:
        os.killpg(server.pid, signal.SIGTERM)
        server.stdout.read()  # until all have closed it
        server.wait()


def listens(url):
    try:
        create_connection(urlsplit(url).netloc.split(":")).close()
        return True
    except ConnectionRefusedError:
        return False


@pytest.fixture(scope="module")
def url(tmp_path_factory):
    home = tmp_path_factory.mktemp("jupyter")
    with make_lab(ROOT, home, course=home / "course") as url:
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
    found = {link for path in NOTEBOOKS if path.parent.name != "site" for link in links(path)}
    assert {"exercises", "notebooks", "tinydist"} <= {link.split("/")[0] for link in found}
    assert [link for link in sorted(found) if not is_served(url, link)] == []


def is_served(url, link):
    try:
        return contents(url, f"{link}?content=0&")["type"] in ("notebook", "file")
    except HTTPError:
        return False


def contents(url, what):
    with urlopen(f"http://{url.netloc}/api/contents/{what}{url.query}", timeout=60) as answer:
        return json.load(answer)


def test_the_file_browser_shows_the_course_and_where_its_links_lead(url):
    shown = {entry["name"] for entry in contents(url, "?")["content"]}
    assert shown == {"notebooks", "exercises", "solutions", "examples", "tinydist"}


def test_the_page_has_our_styles(url):
    with urlopen(f"http://{url.netloc}{url.path}?{url.query}", timeout=60) as page:
        assert "custom/custom.css" in page.read().decode()
    for name in ("custom.css", "dark.svg"):
        with urlopen(f"http://{url.netloc}/custom/{name}", timeout=60) as served:
            assert served.read() == (ROOT / "jupyter_lab_settings" / name).read_bytes()


def test_neither_the_version_of_python_nor_a_line_that_has_vanished_is_saved():
    notebook = contents_saved(lines=[{"data": {}}, {"text": "x"}, {"data": {"text/plain": "1"}}])
    assert notebook["cells"][0]["outputs"] == [{"text": "x"}, {"data": {"text/plain": "1"}}]
    assert notebook["metadata"]["language_info"] == {"name": "python"}


def contents_saved(lines):
    config = runpy.run_path(str(ROOT / "jupyter_lab_config.py"), {"get_config": Config})
    metadata = {"language_info": {"name": "python", "version": "3.99"}}
    content = {"cells": [{"outputs": lines}, {"source": "text"}], "metadata": metadata}
    config["as_everybody_saves_it"](model={"type": "notebook", "content": content}, path="")
    return content


# With a browser.


@pytest.fixture
def page(tmp_path):
    with chromium(tmp_path / "chromium") as page:
        yield page


@pytest.fixture
def copy(tmp_path):
    """Notebooks, to be written to, without what JupyterLab writes into them."""
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
        .filter(each => each.innerText && each.scrollWidth > each.clientWidth + 1)  // others are not laid out yet
        .map(each => each.innerText.slice(0, 60));
    await open.sessionContext.shutdown();
    open.dispose();
    return too_wide;
})()"""


STARTED = "new Promise(done => setInterval(() => window.jupyterapp?.restored.then(done), 100))"
ALLOW = "--LabApp.expose_app_in_browser=True"


def start(page, url):
    page.open(url)
    page.run(STARTED)


@pytest.mark.exhaustive
def test_a_notebook_that_is_opened_fits_the_page_and_saved_is_as_it_was(copy, page, tmp_path):
    """Of the repository: as whoever edits one does it."""
    config = f"--config={ROOT / 'jupyter_lab_config.py'}"
    command = ["jupyter", "lab", config, "--no-browser", "--ip=127.0.0.1", "--port=0", "--allow-root", ALLOW]
    with served(command, copy, tmp_path) as url:
        start(page, url)
        too_wide = {path: page.run(OPEN_AND_SAVE % path.as_posix()) for path in NOTEBOOKS}
    assert {path: cells for path, cells in too_wide.items() if cells} == {}
    assert [path for path in NOTEBOOKS if (copy / path).read_bytes() != (ROOT / path).read_bytes()] == []


LOOKS = """(async () => {
    const open = path => jupyterapp.commands.execute("docmanager:open", {path, factory: "Notebook"});
    await (await open("exercises/00_start_here.ipynb")).context.ready;
    await (await open("notebooks/gallery.ipynb")).context.ready;
    await jupyterapp.commands.execute("apputils:change-theme", {theme: "JupyterLab Dark"});
    const picture = await new Promise(done => setInterval(() => {
        const dark = document.body.dataset.jpThemeLight == "false";
        const found = document.querySelector(".jp-RenderedImage img");
        if (dark && found) done(found);
    }, 100));
    const label = document.querySelector('.lm-TabBar-tab[title*="exercises/"] .lm-TabBar-tabLabel');
    return [getComputedStyle(label, "::before").content, getComputedStyle(picture).filter.slice(-23)];
})()"""


@pytest.mark.exhaustive
def test_tabs_say_what_an_exercise_is_and_pictures_are_dark_in_a_dark_theme(page, tmp_path):
    with make_lab(ROOT, tmp_path, ALLOW, course=tmp_path / "course") as url:
        start(page, url)
        assert page.run(LOOKS) == ['"exercises · "', '/custom/dark.svg#dark")']


# A reader's day: he runs all cells of all chapters, answers an exercise, pulls what is new, and goes on.

RUN_ALL_AND_SAVE = """(async () => {
    const open = await jupyterapp.commands.execute("docmanager:open", {path: "%s", factory: "Notebook"});
    await open.sessionContext.ready;
    const kernel = open.sessionContext.session.kernel;
    await Promise.all([kernel.info, kernel.spec]);
    const edited = open.context.model.dirty;
    await jupyterapp.commands.execute("notebook:run-all-cells");
    await open.context.save();
    const left = [...open.content.widgets].filter(cell => cell.model.type == "code" && !cell.model.executionCount);
    await open.sessionContext.shutdown();
    open.dispose();
    return {edited, left: left.length};
})()"""
ANSWER = """(async () => {
    const open = await jupyterapp.commands.execute("docmanager:open", {path: "%s", factory: "Notebook"});
    await open.sessionContext.ready;
    open.content.widgets.find(cell => cell.model.id == "%s").model.sharedModel.setSource("answer");
    await open.context.save();
    await open.sessionContext.shutdown();
    open.dispose();
})()"""
CHAPTER, EXERCISES, STUB = "notebooks/00_start_here.ipynb", "exercises/00_start_here.ipynb", "average-uneven"


@pytest.fixture
def clone(tmp_path):
    """Of an upstream with what is here; the upstream is beside it."""
    git(ROOT, "rev-parse")
    for name in git(ROOT, "ls-files", "--cached", "--others", "--exclude-standard").splitlines():
        if (ROOT / name).exists():
            (tmp_path / "upstream" / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, tmp_path / "upstream" / name, follow_symlinks=False)
    git(tmp_path / "upstream", "init", "-q"), commit(tmp_path / "upstream")
    git(tmp_path, "clone", "-q", "upstream", "clone")
    return tmp_path / "clone"


def git(folder, *words):
    who = ["-c", "user.name=a", "-c", "user.email=a@b.c", "-c", "init.defaultBranch=main"]
    done = subprocess.run(["git", *who, *words], cwd=folder, capture_output=True, text=True)
    return done.stdout if done.returncode == 0 else pytest.fail(done.stderr)


def commit(folder):
    git(folder, "add", "-A"), git(folder, "commit", "-qm", "What is new")


def add_to_cell(path, place, text):
    notebook = nbformat.read(path, as_version=4)
    cell = notebook.cells[place] if isinstance(place, int) else {cell.id: cell for cell in notebook.cells}[place]
    cell.source += text
    path.write_text(nbformat.writes(notebook) + "\n")


def sources(path):
    return {cell.id: cell.source for cell in nbformat.read(path, as_version=4).cells}


@pytest.mark.exhaustive
def test_whoever_runs_all_chapters_and_answers_an_exercise_can_pull(clone, page, tmp_path):
    page.socket.settimeout(600)  # for all cells of a chapter
    chapters = [f"notebooks/{path.name}" for path in sorted(clone.glob("notebooks/*.ipynb"))]
    with make_lab(clone, tmp_path, ALLOW) as url:
        start(page, url)
        seen = {path: page.run(RUN_ALL_AND_SAVE % path) for path in chapters}
        page.run(ANSWER % (EXERCISES, STUB))
    assert {path: each for path, each in seen.items() if each != {"edited": False, "left": 0}} == {}
    assert git(clone, "status", "--porcelain") == ""
    saved = [output for path in chapters for output in outputs(clone / "course" / path)]
    assert len(saved) > 500 and [output for output in saved if output.get("data") == {}] == []

    upstream = tmp_path / "upstream"
    add_to_cell(upstream / CHAPTER, 0, "\n\nNew."), add_to_cell(upstream / EXERCISES, STUB, "\n# New.")
    commit(upstream)
    git(clone, "pull", "-q", "--ff-only")
    done = subprocess.run([sys.executable, "-m", "tinydist", "copy-course", "course"], cwd=clone, capture_output=True)
    told = done.stdout.decode().splitlines()
    assert told[0].startswith(f"course/{EXERCISES} is new, but for your average_uneven: `") and len(told) == 2
    assert (clone / "course" / CHAPTER).read_bytes() == (clone / CHAPTER).read_bytes()
    assert sources(clone / "course" / EXERCISES) == sources(clone / EXERCISES) | {STUB: "answer"}
    assert git(clone, "status", "--porcelain") == ""


def outputs(path):
    return [output for cell in nbformat.read(path, as_version=4).cells for output in cell.get("outputs", ())]
