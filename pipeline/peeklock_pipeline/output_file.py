"""Files that a command writes besides the lake, such as the page of a report."""

from pathlib import Path

from peeklock_pipeline.refusals import BadOption


def write_output(file: Path, text: str) -> None:
    """Write a text to a file, in UTF-8, and make its directories. Refuses with `BadOption` if that is impossible."""
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")
    except OSError as error:
        raise BadOption(f"{file} cannot be written: {error.strerror or error}.") from error
