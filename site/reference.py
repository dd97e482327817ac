"""The library's reference: a page for each part of it, and its docstrings, which are laid out to be read as they are."""

import ast
import importlib
import re
from inspect import ismodule
from pathlib import Path

PACKAGE = Path(__file__).parent.parent / "tinydist"
NAMED = re.compile(r"([\w*][\w, *]*): +(\S.*)")  # a parameter, or another thing with a name


def parts():
    """The modules and folders of the library with what they are for, in reading order: the map of its docstring."""
    lines = ast.get_docstring(ast.parse((PACKAGE / "__init__.py").read_text())).splitlines()
    named = [re.match(r" {4}([\w.]+)/?  +(.*)", line) for line in lines]
    return {found[1].removesuffix(".py"): found[2] for found in named if found}


def write(app):
    """Pages for Sphinx to read, in reference/."""
    folder = Path(app.srcdir) / "reference"
    folder.mkdir(exist_ok=True)
    table = [f"| [{name}]({name}.md) | {what} |" for name, what in parts().items()]
    heads = ["# Reference", "", "In reading order. Every name leads to its source.", "", "| | |", "|---|---|"]
    tree = ["", "```{toctree}", ":hidden:", *parts(), "```", ""]
    texts = {"index": "\n".join(heads + table + tree)} | {name: page_of(name) for name in parts()}
    for name, text in texts.items():
        path = folder / f"{name}.md"
        if not path.exists() or path.read_text() != text:  # else Sphinx would read it again
            path.write_text(text)


def page_of(name):
    """The names that a part offers, and those of the modules that it offers."""
    module = importlib.import_module(f"tinydist.{name}")
    offered = [getattr(module, each) for each in getattr(module, "__all__", ())]
    modules = [each for each in offered if ismodule(each)]
    return "\n".join(f"{'##'[: 1 + bool(n)]} {each.__name__}\n{documented(each)}" for n, each in enumerate([module, *modules]))


def documented(module):
    return f"```{{eval-rst}}\n.. automodule:: {module.__name__}\n   :members:\n```\n"


def as_rst(app, what, name, thing, options, lines):
    """Paragraphs are prose, lines ``name:  text`` are a list of names, what is indented stays as it is laid out."""
    paragraphs = re.split(r"\n\s*\n", "\n".join(lines).strip("\n"))
    lines[:] = "\n\n".join(paragraph(each) for each in paragraphs if each).splitlines() + [""]


def paragraph(text):
    first = text.splitlines()[0]
    if re.match(r" |\S+\.py  ", first):
        return "::\n\n" + re.sub("^", "   ", text, flags=re.MULTILINE)
    if NAMED.match(first):
        return "\n".join(named(line) for line in text.splitlines())
    return re.sub(r"(?<![\\`*])\*(?=\w)", r"\\*", text)


def named(line):
    found = NAMED.fullmatch(line)
    return f":{found[1].replace('*', '')}: {found[2]}" if found else f"   {line.strip()}"
