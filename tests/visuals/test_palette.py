"""A color has one meaning, can be told from its neighbors, in grey too, and what is written on it can be read."""

import re
from itertools import combinations
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from matplotlib.colors import to_hex, to_rgb
from visuals.drawn import lightness

from tinydist.annotate import PURPOSES
from tinydist.visuals import palette
from tinydist.visuals.palette import (
    INK,
    MEMORY,
    PAPER,
    RANKS,
    SOFT,
    contrast,
    darkened,
    ink_on,
    luminance,
    tint,
)

LEGIBLE = 4.5  # Web Content Accessibility Guidelines, 1.4.3
LOOKS = [look for look in vars(palette).values() if isinstance(look, dict) and "facecolor" in look]
FILLS = {look["facecolor"] for look in [*LOOKS, *MEMORY.values()]} | {*RANKS, palette.DARK, palette.RED}


@pytest.mark.parametrize("color", sorted(FILLS))
def test_a_text_can_be_read_on_every_color(color):
    for paler in (0, 0.45, 0.75) if color in RANKS else (0, 0.3):
        assert contrast(ink_on(tint(color, paler)), tint(color, paler)) >= LEGIBLE


def test_texts_can_be_read_on_paper():
    assert contrast(INK, PAPER) > 10 and contrast(SOFT, PAPER) >= LEGIBLE


def test_passes_differ_in_grey():
    looks = (palette.BACKWARD, palette.FORWARD, palette.WEIGHTS)
    dark, light, pale = (lightness(look["facecolor"]) for look in looks)
    assert dark + 0.2 < light and light + 0.2 < pale


def test_each_purpose_and_each_rank_has_a_color():
    assert tuple(MEMORY) == PURPOSES
    assert len({look["facecolor"] for look in MEMORY.values()}) == len(PURPOSES)
    assert len(set(RANKS)) == len(RANKS) == 8


def test_ranks_differ_for_who_sees_no_green():
    """As Viénot, Brettel and Mollon simulate it (1999): the cones for green are missing."""
    seen = [without_green(to_rgb(color)) for color in RANKS]
    assert min(sum((a - b) ** 2 for a, b in zip(*pair)) ** 0.5 for pair in combinations(seen, 2)) > 0.1


def without_green(color):
    red, green, blue = (part**2.2 for part in color)
    yellow = 0.29275 * red + 0.70725 * green
    return yellow ** (1 / 2.2), max(0.0, -0.02234 * red + 0.02234 * green + blue) ** (1 / 2.2)


@given(*[st.tuples(*[st.floats(0, 1)] * 3)] * 2)
@settings(max_examples=200, deadline=None, derandomize=True, database=None)
def test_contrasts_are_the_same_on_a_dark_slide(one, other):
    """Of what is not lighter than white can be, or darker than black: of colors from INK to PAPER."""
    one, other = ([max(part, 0.1) for part in color] for color in (one, other))
    assert contrast(darkened(one), darkened(other)) == pytest.approx(contrast(one, other), rel=1e-3)


@given(st.tuples(*[st.floats(0.1, 1)] * 3))
@settings(max_examples=200, deadline=None, derandomize=True, database=None)
def test_hues_are_the_same_on_a_dark_slide(color):
    assert sorted(range(3), key=color.__getitem__) == sorted(
        range(3), key=darkened(color).round(9).tolist().__getitem__
    )


def test_paper_becomes_ink():
    assert to_hex(darkened(to_rgb(PAPER))) == INK and luminance(darkened(to_rgb(INK))) > 0.99


def test_a_dark_jupyterlab_shows_the_same_colors():
    """By the tables of a filter: for greys, a row of luminances; hues stay there as here."""
    text = (Path(__file__).parents[2] / "jupyter_lab_settings" / "dark.svg").read_text()
    tables = [[float(part) for part in found.split()] for found in re.findall(r'tableValues="(.*?)"', text)]
    assert tables == [tables[0]] * 3 + [tables[-1]] * 3  # red, green, blue
    for place, (darker, lighter) in enumerate(zip(tables[0], tables[-1], strict=True)):
        light = place / (len(tables[0]) - 1)
        dark = luminance(darkened([from_linear(light)] * 3))
        assert darker == pytest.approx(min(1, dark / light) if light else 1, abs=0.0005)  # three digits
        assert lighter == pytest.approx(min(1, (1 - dark) / (1 - light)) if light < 1 else 1, abs=0.0005)


def from_linear(part):
    return 12.92 * part if part <= 0.0031308 else 1.055 * part ** (1 / 2.4) - 0.055
