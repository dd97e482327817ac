"""Figures are drawn without a screen, and none is left to the next test."""

import matplotlib.pyplot as plt
import pytest


@pytest.fixture(autouse=True)
def no_windows():
    plt.switch_backend("agg")
    yield
    plt.close("all")
