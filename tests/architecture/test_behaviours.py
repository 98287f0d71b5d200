"""docs/behaviours.md gives the status of each promised behaviour, and the tests prove it."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

TESTS = Path(__file__).resolve().parent.parent
TABLE = TESTS.parent / "docs" / "behaviours.md"
LISTS = {"S0": 26, "S1": 88, "S2": 35, "S3": 35, "S4": 24}  # how many rows each source has
PROMISED_NOW = ("S0.", "S2.", "S3.")
ALLOWED_LATER = ("later: the Python client", "later: the pipeline", "later: transactions")
STATUS_TEXT = re.compile(r"tested|(decision|later): \S.*")


def table() -> dict[str, str]:
    """Return the status of each row of the table, by its number."""
    cells = [
        re.split(r"\s*\|\s*", line.strip("| ")) for line in TABLE.read_text().splitlines() if line.startswith("| S")
    ]
    assert all(len(row) == 3 for row in cells), "a row of the table has a stray bar"
    assert len({row[0] for row in cells}) == len(cells), "a row number occurs twice in the table"
    return {number: standing for number, _, standing in cells}


def marked(source: str) -> Iterator[str]:
    """Yield the numbers that the behaviour markers of one test file carry."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Call) and ast.unparse(node.func).endswith("mark.behaviour"):
            yield from (str(argument.value) for argument in node.args if isinstance(argument, ast.Constant))


def proven() -> dict[str, list[str]]:
    """Return the test files that carry each number."""
    files: dict[str, list[str]] = {}
    for file in sorted(TESTS.rglob("test_*.py")):
        for number in marked(file.read_text()):
            files.setdefault(number, []).append(str(file.relative_to(TESTS)))
    return files


def test_every_row_has_one_line() -> None:
    expected = {f"{name}.{number}" for name, count in LISTS.items() for number in range(1, count + 1)}
    assert set(table()) == expected


def test_every_row_has_a_status() -> None:
    unclear = [f"{number}: {standing}" for number, standing in table().items() if not STATUS_TEXT.fullmatch(standing)]
    assert not unclear


def test_every_row_called_tested_has_a_test() -> None:
    carried = proven()
    unproven = [number for number, standing in table().items() if standing == "tested" and number not in carried]
    assert not unproven, f"{len(unproven)} rows are called tested, and no test carries them: {', '.join(unproven)}"


def test_every_row_with_a_test_is_called_tested_or_a_decision() -> None:
    rows = table()
    forgotten = {
        number: files
        for number, files in proven().items()
        if not rows.get(number, "").startswith(("tested", "decision: "))
    }
    assert not forgotten, f"tests carry these numbers, and docs/behaviours.md says otherwise: {forgotten}"


def test_promises_of_the_server_are_not_deferred() -> None:
    put_off = [
        f"{number}: {standing}"
        for number, standing in table().items()
        if number.startswith(PROMISED_NOW) and standing.startswith("later") and standing not in ALLOWED_LATER
    ]
    assert not put_off


def test_markers_are_found_on_functions_and_modules() -> None:
    source = '@pytest.mark.behaviour("S0.1", "S0.2")\ndef test(): ...\npytestmark = [pytest.mark.behaviour("S0.3")]'
    assert sorted(marked(source)) == ["S0.1", "S0.2", "S0.3"]
