"""What a notebook keeps of a picture: the same bytes for the same run, whatever its style; and files."""

import re
from base64 import b64decode
from io import BytesIO

import matplotlib.pyplot as plt
import pytest
from IPython.core.interactiveshell import InteractiveShell
from matplotlib.colors import to_hex, to_rgb
from PIL import Image
from sampled import sampled
from visuals.some_runs import launched, run_of

from tinydist import visuals
from tinydist.visuals.figure import SHARP, STYLE, mimebundle, png, size_of
from tinydist.visuals.palette import LINE, darkened

PICTURES = [visuals.timeline, visuals.memory, visuals.traffic, visuals.cluster]
each_picture = pytest.mark.parametrize("draw", PICTURES, ids=lambda draw: draw.__name__)


def pixels(data):
    return Image.open(BytesIO(data)).convert("RGB")


@each_picture
def test_the_same_bytes_for_the_same_run(draw):
    expected = png(draw(run_of("star")))
    figure = draw(launched("star"))
    assert png(figure) == png(figure) == expected
    with plt.style.context("dark_background"), plt.rc_context({"font.size": 20}):
        assert png(draw(run_of("star"))) == expected


def test_two_pixels_for_each_one_on_the_page():
    figure = visuals.cluster(run_of("star"))
    data, metadata = mimebundle(figure)
    image, shown = pixels(b64decode(data["image/png"])), metadata["image/png"]
    assert image.size == (SHARP * shown["width"], SHARP * shown["height"])
    assert shown["width"] == 720 and shown["alt"] == figure.alt


def test_white_with_a_soft_border():
    image = pixels(png(visuals.cluster(run_of("star"))))
    width, height = image.size
    edge = {image.getpixel(place) for place in [(0, 0), (width - 1, 0), (0, height - 1), (width // 2, 1)]}
    assert {tuple(part / 255 for part in pixel) for pixel in edge} == {to_rgb(LINE)}
    assert image.getpixel((2 * SHARP, 2 * SHARP)) == (255, 255, 255)


def test_256_colors():
    assert Image.open(BytesIO(png(visuals.cluster(run_of("star"))))).mode == "P"


def test_as_a_text_it_is_what_it_shows():
    figure = visuals.traffic(run_of("star"))
    assert repr(figure) == figure.alt


# In a notebook.


def test_a_figure_of_a_notebook_s_own_is_shown_in_the_style():
    shell = InteractiveShell.instance()
    try:
        with plt.rc_context():
            visuals.use_style()
            assert plt.rcParams["font.size"] == STYLE["font.size"]
            figure, _ = plt.subplots(figsize=(5, 2))
            data, metadata = shell.display_formatter.format(figure, include=["image/png"])
        assert pixels(data["image/png"]).size == (1000, 400)
        assert metadata["image/png"] == size_of(figure) == {"width": 500, "height": 200}
    finally:
        InteractiveShell.clear_instance()


def test_without_a_notebook_the_style_is_set_all_the_same():
    with plt.rc_context():
        visuals.use_style()
        assert plt.rcParams["axes.titlelocation"] == "left"


# Files.


@each_picture
@pytest.mark.parametrize("name", sampled(["a.svg"], ["a.svg", "a.png"]))  # PNG: as above
def test_saved_twice_it_is_the_same_file(draw, name, tmp_path):
    for folder in ("one", "two"):
        (tmp_path / folder).mkdir()
        draw(run_of("star")).save(tmp_path / folder / name)
    assert (tmp_path / "one" / name).read_bytes() == (tmp_path / "two" / name).read_bytes()


def test_an_svg_says_what_it_shows(tmp_path):
    figure = visuals.cluster(run_of("star"))
    figure.save(str(tmp_path / "a.svg"))
    assert figure.alt in (tmp_path / "a.svg").read_text()


def colors_in(path):
    return set(re.findall(r"#[0-9a-f]{6}\b", path.read_text()))


def test_a_dark_file_has_as_many_colors_on_dark_paper(tmp_path):
    figure = visuals.cluster(run_of("star"))
    figure.save(tmp_path / "light.svg")
    figure.save(tmp_path / "dark.svg", dark=True)
    figure.save(tmp_path / "dark.png", dark=True)
    light, dark = colors_in(tmp_path / "light.svg"), colors_in(tmp_path / "dark.svg")
    assert dark == {to_hex(darkened(to_rgb(color))) for color in light} != light
    assert max(pixels((tmp_path / "dark.png").read_bytes()).getpixel((0, 0))) < 40


@each_picture
def test_every_color_of_a_picture_is_turned_in_a_dark_file(draw, tmp_path):
    """An image in the SVG would stay as it is."""
    draw(run_of("star")).save(tmp_path / "a.svg")
    assert "<image" not in (tmp_path / "a.svg").read_text()


def test_other_files_are_refused():
    with pytest.raises(ValueError, match=r"save: path must be the name of an \.svg or \.png, got 'a\.pdf'"):
        visuals.cluster(run_of("star")).save("a.pdf")
