"""A solution with marks, the stub that follows from it, and what counts as begun: what Python would run."""

# ruff: noqa: F841

import inspect

import pytest

from tinydist.lab.blanks import edited, is_stub, solution, stub

MARKED = '''\
def f(x):
    """The task."""
    # ? What is twice x?
    y = x + x

    # .
    for _ in range(3):
        # ? What is done three times?
        # ? And how?
        y += 1
    # -
    y = y * 1
    # .
    return y  # = return x'''


def test_a_solution_has_no_marks():
    assert solution(MARKED).splitlines()[2:] == [
        "    y = x + x", "", "    for _ in range(3):", "        y += 1", "    y = y * 1", "    return y",
    ]  # fmt: skip


def test_a_stub_has_the_questions():
    assert (
        stub(MARKED)
        == '''\
def f(x):
    """The task."""
    # What is twice x?
    raise NotImplementedError

    for _ in range(3):
        # What is done three times?
        # And how?
        raise NotImplementedError
    return x'''
    )


def test_both_are_programs():
    for text in (solution(MARKED), stub(MARKED)):
        compile(text, "", "exec")


def test_an_edit_needs_what_it_changes():
    assert edited("a + b", ("a", "c", "c + b", "d")) == "d"
    with pytest.raises(ValueError, match="there is no 'e' in the solution, where a mistake changes it to 'f'"):
        edited("a + b", ("e", "f"))


def test_an_edit_may_span_lines():
    assert edited("a\nb\nc\nb", (("a", "c"), "d")) == "d\nb"
    with pytest.raises(ValueError, match=r"there is no 'a \.\.\. e'"):
        edited("a\nb", (("a", "e"), "f"))


def test_a_blank_may_have_no_question():
    assert stub("x = 0\n# ?\nx = 1\n# .\ny = x") == "x = 0\nraise NotImplementedError\ny = x"


def test_a_stub_ends_with_its_last_line():
    assert stub("def f():\n    # ? What?\n    return 1\n\n# -\ng = f") == (
        "def f():\n    # What?\n    raise NotImplementedError"
    )


# What counts as begun.


def untouched(answer, stub):
    return is_stub(answer, inspect.getsource(stub))


def begin(x):
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
    assert untouched(begin, begin) and untouched(with_other_words, begin) and untouched(without_docstring, begin)
    assert not untouched(begun, begin) and not untouched(with_other_arguments, begin)


def test_a_function_without_text_is_begun():
    names = {}
    exec("def begin(x):\n    return x", names)
    assert not untouched(names["begin"], begin) and not untouched(len, begin) and not untouched(lambda x: x, begin)


def test_a_lambda_that_shares_its_line_is_begun():
    first, second = 1, lambda x: x  # fmt: skip
    one = 1; other = lambda x: x  # fmt: skip # noqa: E702, E731
    assert first == one and not untouched(second, begin) and not untouched(other, begin)
