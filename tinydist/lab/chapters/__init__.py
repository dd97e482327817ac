"""The exercises, by chapter, in the order of the course."""

from . import data_parallel as data_parallel  # isort: skip
