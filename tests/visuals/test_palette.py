"""Every picture: the same bytes for the same run, whatever the notebook's style; one line of text."""

from io import BytesIO

import matplotlib.pyplot as plt
import pytest
from PIL import Image
from visuals.some_runs import PROGRAMS, launched, run_of

from tinydist import visuals
from tinydist.simulator.memory import PURPOSES
from tinydist.visuals.page import png
from tinydist.visuals.palette import MEMORY

PICTURES = [visuals.timeline, visuals.memory, visuals.traffic, visuals.cluster]


@pytest.mark.parametrize("draw", PICTURES, ids=lambda draw: draw.__name__)
@pytest.mark.parametrize("name", PROGRAMS)
def test_a_picture_is_six_inches_on_white_and_said_in_a_line(draw, name, capsys):
    image = Image.open(BytesIO(png(draw(run_of(name)))))
    assert image.width == 600 and 100 <= image.height <= 450
    assert image.convert("RGB").getpixel((0, 0)) == (255, 255, 255)
    assert capsys.readouterr().out.count("\n") == 1


@pytest.mark.parametrize("draw", PICTURES, ids=lambda draw: draw.__name__)
def test_the_same_bytes_for_the_same_run(draw):
    expected = png(draw(run_of("star")))
    figure = draw(launched("star"))
    assert png(figure) == png(figure) == expected
    with plt.style.context("dark_background"), plt.rc_context({"font.size": 20}):
        assert png(draw(run_of("star"))) == expected


@pytest.mark.parametrize("draw", PICTURES, ids=lambda draw: draw.__name__)
@pytest.mark.parametrize("name", ["star", "two nodes", "training"])
def test_no_text_is_cut_off(draw, name):
    figure = draw(run_of(name))
    for axes in figure.axes:
        box = axes.get_tightbbox()
        assert box.x0 >= -1 and box.y0 >= -1
        assert box.x1 <= figure.bbox.width + 1 and box.y1 <= figure.bbox.height + 1


def test_each_purpose_looks_different():
    assert tuple(MEMORY) == PURPOSES
    assert len({look["facecolor"] for look in MEMORY.values()}) == len(PURPOSES)
    assert len({look.get("hatch") for look in MEMORY.values()}) == len(PURPOSES)
