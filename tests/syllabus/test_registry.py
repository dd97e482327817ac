"""Exercises are found by their names, and follow one another in a chapter."""

import ast
import os

import pytest
from lab.mini import Stated, course_of
from lab.toy_course import toy as toy

from tinydist.syllabus import registry
from tinydist.syllabus.registry import chapters, course, entries, find, of_chapter, what_next


def double(x):
    raise NotImplementedError


def triple(x):
    raise NotImplementedError


@pytest.fixture
def two(monkeypatch):
    course_of(monkeypatch, Stated(double, list), Stated(triple, list))


def test_found_by_function_or_name(two):
    assert find(double) is find("double")


def test_what_comes_next(two):
    assert what_next(find("double")).startswith("Next: triple (")
    assert what_next(find("triple")).startswith(f"This was the last exercise of {find('triple').chapter}.")


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


# What is listed of them, read and not run.


def test_it_says_what_the_exercises_do():
    said = [(each.chapter, each.name, each.title, each.minutes, each.difficulty) for each in course()]
    assert [tuple(entry) for entry in entries()] == said


def test_a_file_is_read_anew_only_if_it_has_changed(tmp_path, monkeypatch):
    read, parse, path = [], ast.parse, tmp_path / "chapter.py"
    monkeypatch.setattr(registry.ast, "parse", lambda text: read.append(text) or parse(text))
    for changed, text in enumerate(('ORDER = ["a"]', 'ORDER = ["b"]'), start=1):
        path.write_text(text)
        os.utime(path, ns=(changed, changed))
        assert registry.order_of(path) == registry.order_of(path) == [text[-3]]
    assert read == ['ORDER = ["a"]', 'ORDER = ["b"]']
