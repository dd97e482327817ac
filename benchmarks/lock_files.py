"""What a uv.lock installs on a machine, and from which files; and what a resolver says of a conflict."""

import re

from packaging.markers import Marker
from packaging.utils import parse_wheel_filename

MACHINES = {  # sys_platform, platform_system, platform_machine, and the platform tags of wheels
    "Linux, x86-64": ("linux", "Linux", "x86_64", r"(many)?linux.*_x86_64"),
    "macOS, arm64": ("darwin", "Darwin", "arm64", r"macosx_.*_(arm64|universal2)"),
    "Windows": ("win32", "Windows", "AMD64", r"win_amd64"),
}


def installed(lock, machine, python):
    """Entries of ``lock``, a uv.lock as tomllib reads it, that are installed on a machine with this Python, by name."""
    named = {}
    for package in lock["package"]:
        named.setdefault(package["name"], []).append(package)
    project = next(package for package in lock["package"] if package["source"].keys() & {"virtual", "editable"})
    here = environment(machine, python)
    found, seen, queue = {}, set(), [(project, None)]
    while queue:
        package, extra = queue.pop()
        extras = package.get("optional-dependencies", {}) | {None: package.get("dependencies", [])}
        for need in extras.get(extra, []):
            if "marker" in need and not Marker(need["marker"]).evaluate(here):
                continue
            locked = named[need["name"]]  # several versions: then it is said which
            found[need["name"]] = other = next(p for p in locked if p["version"] == need.get("version", p["version"]))
            new = {(need["name"], each) for each in (None, *need.get("extra", []))} - seen
            seen |= new
            queue += [(other, each) for _, each in new]
    return dict(sorted(found.items()))


def environment(machine, python):
    """What markers ask for."""
    system, name, processor, _ = MACHINES[machine]
    values = {"sys_platform": system, "platform_system": name, "platform_machine": processor}
    return values | {"python_full_version": python, "python_version": python.rpartition(".")[0]}


def download(package, machine, python):
    """The first wheel of an entry that fits; where there is none, the source."""
    for each in package.get("wheels", []):
        name = each["url"].rsplit("/", 1)[1]
        if any(fits(tag, machine, python) for tag in parse_wheel_filename(name)[3]):
            return each
    if "sdist" in package:
        return package["sdist"]
    raise ValueError(f"{package['name']} {package['version']} has no file for {machine} and Python {python}")


def fits(tag, machine, python):
    own = "cp" + "".join(python.split(".")[:2])
    right_python = tag.interpreter == "py3" or tag.abi in (own, "abi3") or (tag.interpreter, tag.abi) == (own, "none")
    return right_python and bool(tag.platform == "any" or re.fullmatch(MACHINES[machine][3], tag.platform))


def words(said):
    """Of what a tool printed: from the line on that says that there is no answer, to the end or to a traceback."""
    lines = [line.strip() for line in said.partition("Traceback")[0].splitlines()]
    kept = [line for line in lines if line and not re.match("WARNING|ERROR: ResolutionImp|Using CPython", line)]
    first = next(place for place, line in enumerate(kept) if re.search("error:|ERROR:|Because", line))
    return "\n".join(kept[first:])
