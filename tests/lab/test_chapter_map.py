"""The map has each chapter once, and the table below it says no less."""

from pathlib import Path

from visuals.drawn import assert_can_be_read

from tinydist.lab.chapter_map import chapter_map, names_and_arrows

ROOT = Path(__file__).parent.parent.parent


def test_each_notebook_of_a_chapter_is_in_it():
    names, _ = names_and_arrows()
    assert list(names) == sorted(path.stem.split("_")[0] for path in ROOT.glob("notebooks/[0-9]*.ipynb"))


def test_it_can_be_read():
    assert_can_be_read(chapter_map())
