"""The exercises as they are shipped. Once a reader has begun them they are his, and may say what they like."""

from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def shipped(folder="exercises"):
    """The folder; a test that needs it is skipped if it is a reader's own."""
    if folder == "exercises" and (ROOT / folder / "progress.json").exists():
        pytest.skip("you have begun the exercises: .venv/bin/python -m tinydist checks your answers")
    return ROOT / folder
