"""What files of exercises say of themselves, read and not run."""

import ast
import os

from tinydist.lab import syllabus
from tinydist.lab.find import course


def test_it_says_what_the_exercises_do():
    said = [(each.chapter, each.name, each.title, each.minutes, each.difficulty) for each in course()]
    assert [tuple(entry) for entry in syllabus.course()] == said


def test_a_file_is_read_anew_only_if_it_has_changed(tmp_path, monkeypatch):
    read, parse, path = [], ast.parse, tmp_path / "chapter.py"
    monkeypatch.setattr(syllabus.ast, "parse", lambda text: read.append(text) or parse(text))
    for changed, text in enumerate(('ORDER = ["a"]', 'ORDER = ["b"]'), start=1):
        path.write_text(text)
        os.utime(path, ns=(changed, changed))
        assert syllabus.order_of(path) == syllabus.order_of(path) == [text[-3]]
    assert read == ['ORDER = ["a"]', 'ORDER = ["b"]']
