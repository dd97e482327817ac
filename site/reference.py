"""The library's reference: a page for each part of it, of docstrings that are laid out to be read as they are."""

import ast
import importlib
import inspect
import re
from contextlib import suppress
from pathlib import Path
from textwrap import dedent, indent

PACKAGE = Path(__file__).parent.parent / "tinydist"
NAMED = re.compile(r"(?:([a-z*][\w, *]*): +|(\w+\.py|\w+/) +)(\S.*)")  # a parameter, a file: what it is
MARKUP = re.compile(r"(``.*?``)|\*(?=\w)|(?<=\w)_(?!\w)|\|", re.DOTALL)  # to reST, where a docstring does not mean it
TO_SOURCE = re.compile(r"\]\(\.\./(\S+\.(?:md|py|sh|yaml))\)")  # a link of a notebook


def groups():
    """{heading: {part: what it is for}}, in reading order: the map of the package's docstring."""
    found = {}
    for line in ast.get_docstring(ast.parse((PACKAGE / "__init__.py").read_text())).splitlines():
        if heading := re.fullmatch(r"(\S.*):", line):
            found[heading[1]] = {}
        elif part := re.match(r" {4}(\w+)(?:\.py|/) +(.*)", line):
            found[next(reversed(found))][part[1]] = part[2]
    return found


def parts():
    """The modules and folders of the library with what they are for, in reading order."""
    return {name: what for group in groups().values() for name, what in group.items()}


def write(app):
    """Pages for Sphinx to read, in reference/."""
    folder = Path(app.srcdir) / "reference"
    table = []
    for heading, group in groups().items():
        table += [f"| **{heading}** | |", *(f"| [{name}]({name}.md) | {what} |" for name, what in group.items())]
    heads = ["# Reference", "", "In reading order. Every name leads to its source.", "", "| | |", "|---|---|"]
    tree = ["", "```{toctree}", ":hidden:", *parts(), "```", ""]
    texts = {"index": "\n".join(heads + table + tree)} | {name: page_of(name) for name in parts()}
    texts |= {f"source/{name}": source_of(name) for name in linked()}
    for name, text in texts.items():
        path = folder / f"{name}.md"
        path.parent.mkdir(parents=True, exist_ok=True)
        if not path.exists() or path.read_text() != text:  # else Sphinx would read it again
            path.write_text(text)


def linked():
    """The files of the repository that notebooks lead to."""
    texts = (path.read_text() for path in (PACKAGE.parent / "notebooks").glob("*.ipynb"))
    return {name for text in texts for name in TO_SOURCE.findall(text)}


def source_of(name):
    path = PACKAGE.parent / name
    shown = f"# {name}\n\n```{{literalinclude}} /../{name}\n:language: {path.suffix[1:]}\n```\n"
    return f"---\norphan: true\n---\n\n{path.read_text() if path.suffix == '.md' else shown}"


def page_of(name):
    """The names that a part offers, and those of the modules that it offers."""
    module = importlib.import_module(f"tinydist.{name}")
    offered = [getattr(module, each) for each in getattr(module, "__all__", ())]
    modules = [each for each in offered if inspect.ismodule(each)]
    return documented("#", module) + "".join(documented("##", each) for each in modules)


def documented(heading, module):
    name = module.__name__
    return f"{heading} {name}\n\n```{{eval-rst}}\n.. automodule:: {name}\n   :members:\n```\n\n"


def as_rst(app, what, name, thing, options, lines):
    """Paragraphs are prose, lines ``name:  text`` are a list of names, tables and what is indented stay as laid out."""
    paragraphs = re.split(r"\n\s*\n", "\n".join(lines).strip("\n"))
    lines[:] = "\n\n".join(paragraph(each) for each in paragraphs if each).splitlines() + [""]


def is_of_others(app, what, name, thing, skip, options):
    """A name that stands for a function of torch has its documentation there; a field has it in its class."""
    module = getattr(thing, "__module__", None)
    of_others = module and module.split(".")[0] != "tinydist"
    return True if of_others or (inspect.getdoc(thing) or "").startswith("Alias for field number") else None


def paragraph(text):
    inner = dedent(text)
    if NAMED.match(inner):
        text = "\n".join(map(named, inner.splitlines()))
    elif inner != text or inner.startswith("| "):
        return f".. code-block:: {'python' if is_python(inner) else 'none'}\n\n" + indent(inner, "   ")
    return MARKUP.sub(lambda found: found[1] or "\\" + found[0], text)


def is_python(text):
    with suppress(SyntaxError):
        return bool(ast.parse(text))


def named(line):
    found = NAMED.fullmatch(line)
    return f":{(found[1] or found[2]).replace('*', '')}: {found[3]}" if found else f"   {line.strip()}"
