"""The syllabus: chapters and exercises, the reader's copy of the course, and the reader's progress. No torch.

An exercise is one file in solutions/, outside of the package, since it holds the solution (registry.py); notebooks of
exercises are written from those files (notebooks.py).
"""
