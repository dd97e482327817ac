"""ARCHITECTURE.md: every file of the library with its first sentence, in reading order (`make architecture`)."""

import ast
import re
from pathlib import Path

from reference import PACKAGE, groups

PAGE = PACKAGE.parent / "ARCHITECTURE.md"
HEAD = """# Architecture

| folder | what it has |
|---|---|
| [notebooks](notebooks), [exercises](exercises) | the course |
| [solutions](solutions) | the same, filled in; an exercise is one file, `solutions/CHAPTER/NAME.py` |
| [tinydist](tinydist) | the library, below |
| [tests](tests) | mirrors `tinydist/` |
| [benchmarks](benchmarks) | one file per claim, beside what you would use instead |
| [examples](examples) | the same training step in other systems; several machines |
| [gpu](gpu) | what needs GPUs (`make gpu`) |
| [site](site) | the course as web pages (`make site`) |
| [docs](docs) | installation, your own program, testing, training, benchmarks |

Packages are layered: a package imports only packages that stand above it here, and `make imports` checks that.
Foundations and techniques do not know the simulator. `make architecture` makes this page, from the first sentence of
each file.

"""


def page():
    table = [
        "| | |",
        "|---|---|",
        *(f"| {heading} | {', '.join(map(link, group))} |" for heading, group in groups().items()),
    ]
    parts = [section(name, what) for group in groups().values() for name, what in group.items()]
    return HEAD + "\n".join(["| | |", "|---|---|", *table, *parts])


def link(name):
    return f"[{name}](#{name})"


def section(name, what):
    files = [PACKAGE / f"{name}.py"] if (PACKAGE / f"{name}.py").exists() else sorted((PACKAGE / name).rglob("*.py"))
    lines = [f"- [{path.relative_to(PACKAGE)}](tinydist/{path.relative_to(PACKAGE)}): {said(path)}" for path in files]
    return f"\n## {name}\n\n{what[0].upper() + what[1:]}.\n\n" + "\n".join(lines) + "\n"


def said(path):
    """The first sentence of its docstring."""
    first = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))).partition("\n\n")[0]
    return re.match(r".*?[.?!](?=\s|$)|.*", " ".join(first.split()))[0].rstrip(":")


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
    print(f"wrote {Path(PAGE).name}")
