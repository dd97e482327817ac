"""What counts as begun: what Python would run, and nothing else."""

# ruff: noqa: F841

import inspect

from tinydist.lab import untouched as module


def untouched(answer, stub):
    return module.untouched(answer, inspect.getsource(stub))


def stub(x):
    """The task."""
    y = x + 1
    raise NotImplementedError


def with_other_words(x):
    """Mine."""

    y = x + 1  # a note
    raise NotImplementedError


def without_docstring(x):
    y = x + 1
    raise NotImplementedError


def begun(x):
    """The task."""
    y = x + 2
    raise NotImplementedError


def with_other_arguments(x, z):
    """The task."""
    y = x + 1
    raise NotImplementedError


def test_what_python_would_run_counts():
    assert untouched(stub, stub) and untouched(with_other_words, stub) and untouched(without_docstring, stub)
    assert not untouched(begun, stub) and not untouched(with_other_arguments, stub)


def test_a_function_without_text_is_begun():
    names = {}
    exec("def stub(x):\n    return x", names)
    assert not untouched(names["stub"], stub) and not untouched(len, stub) and not untouched(lambda x: x, stub)
