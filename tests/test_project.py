"""What is written down twice is the same in both places."""

import ast
import re
import tomllib
from importlib.metadata import distributions
from pathlib import Path

import architecture
import grimp
import pytest
import reference
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name

from tinydist import torch_versions
from tinydist.diagnose import doctor
from tinydist.syllabus.registry import chapters, names_of

ROOT = Path(__file__).parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def requirements(without=()):
    """All that pyproject.toml asks for, by name."""
    extras = [lines for extra, lines in PROJECT["optional-dependencies"].items() if extra not in without]
    lines = sum(extras, start=PROJECT["dependencies"])
    return {Requirement(line).name: Requirement(line) for line in lines}


def pins():
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    return dict(line.split("==") for line in lines if not line.startswith("#"))


def pins_by_canonical_name():
    return {canonicalize_name(name): version for name, version in pins().items()}


def environment():
    """The entries of environment.yml, those for conda and those for pip."""
    text = (ROOT / "environment.yml").read_text()
    conda, pip = text.split("dependencies:\n")[1].split("- pip:\n")
    return [re.findall(r"^ *- (.+)$", part, re.MULTILINE) for part in (conda, pip)]


def test_environment_asks_for_the_same():
    conda, pip = environment()
    assert conda == [f"python{PROJECT['requires-python']}", "pip"]
    assert pip[:2] == ["--constraint constraints.txt", "--editable ."]
    one_of_their_own = ("systems", "compilers")  # make systems, make compilers
    assert {Requirement(line) for line in pip[2:]} == set(requirements(without=one_of_their_own).values())


def test_constraints_pin_every_requirement():
    for name, requirement in requirements().items():
        assert pins()[name] in requirement.specifier, f"{requirement}, but constraints.txt has {pins()[name]}"


def test_constraints_suit_every_machine():
    """A local version such as 2.13.0+cpu exists for some machines only."""
    assert [name for name, version in pins().items() if "+" in version] == []


def test_constraints_suit_the_oldest_python():
    """Its first release: Debian 12 has 3.11.2."""
    first = PROJECT["requires-python"].removeprefix(">=") + ".0"
    for installed in distributions():
        name, asked = canonicalize_name(installed.name), installed.metadata.get("Requires-Python")
        if pins_by_canonical_name().get(name) == installed.version:
            assert first in SpecifierSet(asked or ""), f"{name} {installed.version} needs Python {asked}"


def test_doctor_wants_what_the_project_wants():
    assert PROJECT["requires-python"] == ">=" + doctor.dotted(doctor.OLDEST_PYTHON)
    assert str(requirements()["torch"].specifier) == ">=" + torch_versions.OLDEST


def test_the_torch_to_install_is_the_pinned_one():
    assert f"`pip install torch=={pins()['torch']}`" in torch_versions.INSTALL
    assert not torch_versions.too_old(pins()["torch"]) and not torch_versions.untested(pins()["torch"])


def test_there_is_a_row_for_each_torch_that_was_tested():
    page = (ROOT / "docs" / "installation.md").read_text()
    rows = re.findall(r"^\| (2\.\d+)\.\d+ \| [\d,]+ \|", page, re.MULTILINE)
    assert (rows[0], rows[-1]) == (torch_versions.OLDEST, torch_versions.NEWEST)


def test_readme_lists_the_notebooks():
    rows = [line for line in (ROOT / "README.md").read_text().splitlines() if line.startswith("|")]
    listed = re.findall(r"\(notebooks/(\w+)\.ipynb\)", "\n".join(rows))
    found = {path.stem for path in ROOT.glob("notebooks/*.ipynb")}
    assert listed == sorted(found - {"index"})  # the map is no chapter


def test_readme_counts_chapters_exercises_and_hours():
    said = (ROOT / "README.md").read_text()
    rows = re.findall(r"^\| \[\d.*\| \[(\d+)\]\(exercises/(\w+)\.ipynb\) \|$", said, re.MULTILINE)
    assert {name: int(number) for number, name in rows} == {name: len(names_of(name)) for name in chapters()}
    index = (ROOT / "notebooks" / "index.ipynb").read_text()
    minutes = re.findall(r"\| \[.*\.ipynb\) \| (\d+) \|", index)
    assert f"a course of {len(rows)} notebooks" in said
    assert f"the {sum(int(number) for number, _ in rows)} exercises" in said
    assert f"take about {round(sum(map(int, minutes)) / 60)} hours" in said


@pytest.mark.parametrize(
    "page", [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))], ids=lambda page: page.stem
)
def test_links_lead_to_files(page):
    links = [link.partition("#")[0] for link in re.findall(r"\]\(([^)\s]+)\)", page.read_text()) if "://" not in link]
    assert [link for link in links if not (page.parent / link).exists()] == []


def test_the_page_of_the_architecture_is_as_the_files_say():
    """`make architecture` writes it."""
    assert architecture.PAGE.read_text() == architecture.page()


def test_map_names_what_there_is():
    """The map in tinydist/__init__.py: a line for each module and folder, none for what is to come."""
    package = ROOT / "tinydist"
    docstring = ast.get_docstring(ast.parse((package / "__init__.py").read_text()), clean=False)
    modules = [path.name for path in package.glob("*.py") if path.name not in ("__init__.py", "__main__.py")]
    folders = [f"{path.parent.name}/" for path in package.glob("*/__init__.py")]
    assert sorted(re.findall(r"^ {4}(\S+)", docstring, re.MULTILINE)) == sorted(modules + folders)


def test_the_map_is_in_the_order_of_imports():
    names, graph = list(reference.parts()), grimp.build_graph("tinydist", cache_dir=None)
    for number, name in enumerate(names):
        for later in names[number + 1 :]:
            found = graph.direct_import_exists(
                importer=f"tinydist.{name}", imported=f"tinydist.{later}", as_packages=True
            )
            assert not found, f"{name} imports {later}, which stands below it"
