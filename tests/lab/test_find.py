"""Exercises are found by their names, and follow one another in a chapter."""

import pytest
from lab.mini import Stated, course_of
from lab.toy_course import toy as toy

from tinydist.lab.find import chapters, course, find, following, of_chapter


def double(x):
    raise NotImplementedError


def triple(x):
    raise NotImplementedError


@pytest.fixture
def two(monkeypatch):
    course_of(monkeypatch, Stated(double, list), Stated(triple, list))


def test_found_by_function_or_name(two):
    assert find(double) is find("double")
    assert following(find("double")) is find(triple)
    assert following(find(triple)) is None


def test_unknown_name(two):
    with pytest.raises(LookupError, match=r"no exercise 'doubel'. Did you mean double\?$"):
        find("doubel")
    with pytest.raises(LookupError, match=r"no exercise '<lambda>'. .* -m tinydist lists them$"):
        find(lambda: None)


def test_in_a_folder(toy):
    assert chapters() == ["98_toys"] and of_chapter("98_toys") == course() == [find("average")]


def test_a_package_without_exercises_says_where_they_are(monkeypatch, tmp_path):
    monkeypatch.setenv("TINYDIST_EXERCISES", str(tmp_path))
    assert course() == []
    with pytest.raises(LookupError, match="not part of the package: clone tinydist, or say"):
        find("average")
