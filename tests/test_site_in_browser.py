"""The pages that `make site` writes, opened as files: as a reader meets them, at three widths and in both themes."""

import re
from html import unescape
from importlib.resources import files
from urllib.parse import unquote, urldefrag

import pytest
from browser import chromium
from test_notebooks import ROOT

pytestmark = pytest.mark.site
BUILT = ROOT / "build" / "site"
PAGES = sorted(BUILT.rglob("*.html"))
WRITTEN = [path for path in PAGES if "_modules" not in path.parts]  # the others are the source, line by line
WITH_EXPLORERS = [path for path in WRITTEN if 'class="explorer"' in path.read_text()]
WIDTHS = 375, 800, 1400
THEMES = "light", "dark"


def name(path):
    return path.relative_to(BUILT).as_posix()


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    with chromium(tmp_path_factory.mktemp("chromium")) as page:
        for domain in ("Page", "Runtime", "Network", "Log"):
            page.ask(f"{domain}.enable")
        yield page


def prefer(page, theme):
    page.ask("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": theme}])


def test_there_are_pages():
    assert {"index.html", "search.html", "notebooks/index.html", "reference/index.html"} <= set(map(name, PAGES))


# Without a browser: links.


def test_every_link_leads_to_a_place_that_is_there():
    texts = {path: path.read_text() for path in PAGES}
    places = {path: {*re.findall(r'\sid="([^"]+)"', text)} for path, text in texts.items()}
    broken = set()
    for path, text in texts.items():
        for link in {*re.findall(r'\s(?:href|src)="([^"]*)"', text)}:
            if not re.match(r"\w+:|//", link) and not leads_somewhere(path, unescape(link), places):
                broken.add((name(path), link))
    assert sorted(broken) == []


def leads_somewhere(path, link, places):
    address, fragment = urldefrag(link)
    target = (path.parent / unquote(address.partition("?")[0])).resolve() if address else path
    if path not in WRITTEN:  # Sphinx knows one name of each module, though it may be documented under two
        return target.is_file()
    return target.is_file() and (not fragment or unquote(fragment) in places[target])


# As it is loaded.


@pytest.mark.parametrize("path", PAGES, ids=name)
def test_a_page_needs_nothing_from_elsewhere_and_fits_every_width(page, path):
    page.open(path.as_uri())
    too_wide = {}
    for width in WIDTHS:
        page.ask("Emulation.setDeviceMetricsOverride", width=width, height=900, deviceScaleFactor=1, mobile=width < 500)
        if (needed := page.run("document.documentElement.scrollWidth")) > width:
            too_wide[width] = needed
    page.ask("Emulation.clearDeviceMetricsOverride")
    assert (list(complaints(page)), fetched(page)) == ([], [])
    assert too_wide == {}


def complaints(page):
    """What a browser writes in red."""
    for event in page.events:
        if event["method"] == "Runtime.exceptionThrown":
            yield event["params"]["exceptionDetails"]
        if event["method"] == "Log.entryAdded" and event["params"]["entry"]["level"] == "error":
            yield event["params"]["entry"]
        if event["method"] == "Runtime.consoleAPICalled" and event["params"]["type"] == "error":
            yield event["params"]


def fetched(page):
    """Addresses that are no files."""
    asked = [event for event in page.events if event["method"] == "Network.requestWillBeSent"]
    return [url for event in asked if not (url := event["params"]["request"]["url"]).startswith(("file:", "data:"))]


# As it is read, also by those who do not see it, or not well.


@pytest.fixture(scope="module")
def axe():
    return (files("axe_core_python") / "axe.min.js").read_text()


FAULTS = """axe.run(document, {
    runOnly: ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa"],
    rules: {"heading-order": {enabled: true}, "empty-heading": {enabled: true}},
    resultTypes: ["violations"],
}).then(found => found.violations.map(each =>
    `${each.id}: ${each.help}: ${each.nodes.slice(0, 3).map(node => node.html.slice(0, 200)).join(" | ")}`))"""


@pytest.mark.parametrize("path", WRITTEN, ids=name)
def test_a_page_can_be_read_by_everybody(page, path, axe):
    page.open(path.as_uri())
    page.run(axe + "; 0")
    faults = {}
    for theme in THEMES:
        prefer(page, theme)
        faults[theme] = page.run(FAULTS)
    assert faults == {"light": [], "dark": []}


SHOWN = "[...document.querySelectorAll('.picture img')].filter(each => each.checkVisibility()).map(each => each.src)"


def test_the_button_for_the_theme_changes_pictures_too(page):
    page.open((BUILT / "index.html").as_uri())
    prefer(page, "light")
    light = page.run(SHOWN)
    for _ in range(3):  # it goes round: as the system, light, dark
        if page.run("document.body.dataset.theme") != "dark":
            page.run("[...document.querySelectorAll('.theme-toggle')].at(-1).click()")
    dark = page.run(SHOWN)
    assert light and [src.replace(".png", "-dark.png") for src in light] == dark
    page.run("localStorage.clear()")


# Explorers.


MOVED = """(async () => {
    const found = [];
    for (const explorer of document.querySelectorAll(".explorer")) {
        explorer.scrollIntoView();  // pictures out of sight are not loaded
        const image = [...explorer.querySelectorAll("img")].find(each => each.checkVisibility());
        const seen = new Set([image.src]);
        for (const input of explorer.querySelectorAll("input, select")) {
            for (let place = 0; place < (input.options ? input.options.length : Number(input.max) + 1); place++) {
                input.value = place;
                input.dispatchEvent(new Event("input", {bubbles: true}));
                if (image.hidden) continue;
                await image.decode();
                seen.add(image.src);
            }
        }
        found.push({pictures: seen.size, text: explorer.querySelector("pre").textContent});
    }
    return found;
})()"""


@pytest.mark.parametrize("theme", THEMES)
@pytest.mark.parametrize("path", WITH_EXPLORERS, ids=name)
def test_a_control_that_is_moved_changes_the_picture(page, path, theme):
    page.open(path.as_uri())
    prefer(page, theme)
    for explorer in page.run(MOVED):
        assert explorer["pictures"] > 2


# The search.


def test_a_word_is_found_without_a_server(page):
    page.open((BUILT / "search.html").as_uri() + "?q=bubble")
    found = page.run(
        "new Promise(done => setInterval(() => {"
        "const links = document.querySelectorAll('#search-results li a');"
        "if (links.length) done([...links].map(each => each.getAttribute('href')))}, 50))"
    )
    assert any("08_pipeline_parallel" in link for link in found)
