"""A command writes its output where it is asked to, or says why it cannot."""

from pathlib import Path

import pytest
from peeklock_pipeline.output_file import write_output
from peeklock_pipeline.refusals import BadOption


def test_the_directories_of_an_output_file_are_made(tmp_path: Path) -> None:
    file = tmp_path / "reports" / "today" / "page.html"
    write_output(file, "Übersicht")
    write_output(file, "new")
    assert file.read_text(encoding="utf-8") == "new"


def test_an_output_file_that_cannot_be_written_is_refused(tmp_path: Path) -> None:
    taken = tmp_path / "taken"
    taken.write_text("a file")
    with pytest.raises(BadOption, match=r"taken/page\.html cannot be written: (File exists|Not a directory)\.$"):
        write_output(taken / "page.html", "text")
    with pytest.raises(BadOption, match=r" cannot be written: Is a directory\.$"):
        write_output(tmp_path, "text")
