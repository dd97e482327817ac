"""The fixture ``run``."""

import pytest
from scripts.running import runner


@pytest.fixture
def run(capsys, monkeypatch, tmp_path):
    return runner(capsys, monkeypatch, tmp_path)
