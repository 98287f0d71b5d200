"""The directories of shared metrics: each ends with its server, at the latest when another server starts."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest

from app.server.shared_metrics import metrics_directory


@pytest.fixture(autouse=True)
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The directory for temporary files."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


def test_the_directory_of_a_killed_server_is_removed(temporary: Path) -> None:
    killed = temporary / "peeklock-metrics-killed"
    killed.mkdir()
    (killed / "lock").touch()
    (killed / "counter_1.db").touch()
    with metrics_directory() as own:
        assert list(temporary.iterdir()) == [own]
    assert list(temporary.iterdir()) == []


def test_the_directory_of_a_server_that_runs_is_left_alone(temporary: Path) -> None:
    with metrics_directory() as first, metrics_directory() as second:
        assert {*temporary.iterdir()} == {first, second}


def test_directories_that_no_server_has_locked_are_left_alone(temporary: Path) -> None:
    (temporary / "peeklock-metrics-of-an-older-version").mkdir()
    (temporary / "peeklock-metrics-file").touch()
    (temporary / "target").mkdir()
    (temporary / "target/lock").touch()
    (temporary / "peeklock-metrics-link").symlink_to("target")
    before = {*temporary.iterdir()}
    with metrics_directory():
        pass
    assert {*temporary.iterdir()} == before
    assert (temporary / "target/lock").exists()
