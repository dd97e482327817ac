"""The catalogue: exercises are found by their name, and stubs are the text that a notebook shows."""

import pytest

from tinydist.lab.exercise import CATALOGUE, Exercise, exercise, find, following


@pytest.fixture
def catalogue(monkeypatch):
    """Two exercises alone."""
    monkeypatch.setattr("tinydist.lab.exercise.CATALOGUE", {})
    monkeypatch.setenv("TINYDIST_EXERCISES", "nowhere")
    facts = dict(chapter="99", title="t", minutes=1, difficulty=1, targets={}, hints=["h"], why="w", check=list)

    @exercise(**facts)
    def double(x):
        """Twice x."""
        raise NotImplementedError  # here

    @exercise(**facts)
    def triple(x):
        raise NotImplementedError

    return double, triple


def test_a_stub_stays_a_function(catalogue):
    double, _ = catalogue
    with pytest.raises(NotImplementedError):
        double(1)


def test_source_is_the_stub_without_its_decorator(catalogue):
    assert find("double").source == 'def double(x):\n    """Twice x."""\n    raise NotImplementedError  # here'
    assert find("double").task == "Twice x."


def test_found_by_function_or_name(catalogue):
    double, triple = catalogue
    assert find(double) is find("double")
    assert following(find("double")) is find(triple)
    assert following(find(triple)) is None


def test_unknown_name(catalogue):
    with pytest.raises(LookupError, match=r"no exercise 'doubel'. Did you mean double\?$"):
        find("doubel")
    with pytest.raises(LookupError, match=r"no exercise '<lambda>'. .* -m tinydist lists them$"):
        find(lambda: None)


def test_every_exercise_of_the_course_is_there():
    assert CATALOGUE and all(isinstance(each, Exercise) for each in CATALOGUE.values())
