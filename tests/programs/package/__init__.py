"""Run with -m package.train: a package whose modules keep state in global variables."""

from . import state

state.seen.append(__name__)
