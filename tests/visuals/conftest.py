"""Figures are drawn without a screen, and none is left to the next test; what they print is read whole."""

import matplotlib.pyplot as plt
import pytest


@pytest.fixture(autouse=True)
def no_windows():
    plt.switch_backend("agg")
    yield
    plt.close("all")


@pytest.fixture
def said(capsys):
    """What was printed, with the lines whole that were ended to fit a page."""
    return lambda: capsys.readouterr().out.replace("\n  ", " ")
