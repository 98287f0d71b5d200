"""The page of results is what runs have written: whole, well formed, and of one set of conditions."""

import pytest

from benchmarks.results_page import BEGIN, END, HEAD, NOT_MEASURED, PAGE, record, table_rows
from benchmarks.rows import ON_REQUEST, ROWS
from benchmarks.table import Row, at_most

EMPTY_PAGE = f"# Title\n{BEGIN}{END}\n## After\n"
NAMES = ("send", "batch", "soak")
HERE = {"cores": "2", "Python": "3.11.7"}
SEND = Row("send", "64 callers", "1 ms", "2 ms", [at_most(1, " ms", 1.0)])
BATCH = Row("lifecycle in batches", "a | b", "3 ms", "itself", [at_most(1, " ms", 3.0)])


def results() -> str:
    return PAGE.read_text().partition(BEGIN)[2].partition(END)[0]


def test_the_page_has_every_row_of_the_benchmark_in_its_order() -> None:
    table = results().partition(HEAD)[2].partition("\n\n")[0]
    shown = [line.strip("| ").partition(" |")[0] for line in table.splitlines()]
    assert list(dict.fromkeys(shown)) == [*ROWS, *ON_REQUEST]


def test_each_row_of_the_page_has_six_cells_and_a_verdict() -> None:
    rows = [cells for group in table_rows(results()).values() for cells in group]
    assert {len(cells) for cells in rows} == {6}
    assert {cells[-1] for cells in rows} <= {"met", "missed", "no target"}


def test_the_page_names_each_missed_target() -> None:
    rows = [cells for group in table_rows(results()).values() for cells in group]
    missed = [cells[1] for cells in rows if cells[-1] == "missed"]
    sentence = f"Missed: {'; '.join(missed)}." if missed else "No target is missed."
    assert f"\n\n{sentence}\n\n" in results()


def test_a_run_replaces_its_rows_and_keeps_the_others() -> None:
    page = record(EMPTY_PAGE, NAMES, {"send": [SEND], "batch": [BATCH]}, HERE)
    page = record(page, NAMES, {"send": [SEND, SEND]}, HERE)
    assert {name: len(rows) for name, rows in table_rows(page).items()} == {"send": 2, "batch": 1}
    assert f"| soak | {NOT_MEASURED} |" in page
    assert "Missed: lifecycle in batches: a / b.\n" in page
    assert page.startswith("# Title\n")
    assert page.endswith("\n## After\n")


def test_a_run_under_other_conditions_removes_the_other_rows() -> None:
    page = record(EMPTY_PAGE, NAMES, {"batch": [BATCH]}, HERE)
    page = record(page, NAMES, {"send": [SEND]}, HERE | {"cores": "4"})
    assert list(table_rows(page)) == ["send"]
    assert "Conditions: cores 4, Python 3.11.7.\n" in page


def test_a_page_without_its_marks_is_refused() -> None:
    with pytest.raises(ValueError, match="marks"):
        record(EMPTY_PAGE.replace(END, ""), NAMES, {}, HERE)
