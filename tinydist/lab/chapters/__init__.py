"""The exercises, by chapter, in the order of the course."""

from . import collectives as collectives
