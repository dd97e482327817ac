"""The exercises as they are shipped."""

from pathlib import Path

ROOT = Path(__file__).parents[2]
EXERCISES = ROOT / "exercises"
