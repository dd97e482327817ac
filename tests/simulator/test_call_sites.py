"""Whose code is it? Installed packages are no learner's, wherever they are installed."""

import pytest
from warm import told_by


@pytest.mark.parametrize("folder, library", [("lib/site-packages", True), ("dist-packages", True), ("mine", False)])
def test_what_is_installed_for_all_or_for_a_user_is_a_library(tmp_path, monkeypatch, folder, library):
    (tmp_path / folder).mkdir(parents=True)
    (tmp_path / folder / "installed.py").write_text("def function(): pass")
    (tmp_path / "asks.py").write_text(
        f"import sys; sys.path.append({str(tmp_path / folder)!r})\n"
        "from importlib import reload; from tinydist.simulator import call_sites; reload(call_sites)\n"
        "import installed; print(call_sites.is_library[installed.function.__code__.co_filename])"
    )
    assert told_by(tmp_path / "asks.py") == f"{library}\n"
