"""Keeps the results of whole runs in a marked part of docs/performance.md.

A run replaces the rows that it measured and keeps the others, unless they were measured under other conditions.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path

from benchmarks.table import Row

PAGE = Path(__file__).resolve().parent.parent / "docs" / "performance.md"
BEGIN = "<!-- `python3 dev.py bench` writes what follows. -->\n"
END = "<!-- End of what `python3 dev.py bench` writes. -->\n"

HEAD = "| row | conditions | measured | reference | target | result |\n|---|---|---|---|---|---|\n"
NOT_MEASURED = "not measured under these conditions"

Cells = Sequence[str]


def record(
    page: str, names: Sequence[str], measured: Mapping[str, Sequence[Row]], conditions: Mapping[str, str]
) -> str:
    """Return the page with these measured rows. `names` are all rows of the benchmark, in the order of the table."""
    before, _, rest = page.partition(BEGIN)
    old, _, after = rest.partition(END)
    if BEGIN not in page or END not in rest:
        raise ValueError(f"{PAGE.name} has lost one of the two marks between which results are kept")
    told = ", ".join(f"{name} {value}" for name, value in conditions.items())
    heading = f"Conditions: {told}.\n"
    kept = table_rows(old) if heading in old else {}
    rows = {
        name: [_cells(name, row) for row in measured[name]] if name in measured else kept.get(name, [])
        for name in names
    }
    lines = [cells for name in names for cells in rows[name] or [(name, NOT_MEASURED, "", "", "", "")]]
    table = HEAD + "".join(f"| {' | '.join(cells)} |\n" for cells in lines)
    return "".join((before, BEGIN, "\n", heading, "\n", table, "\n", _misses(lines), "\n", END, after))


def table_rows(text: str) -> dict[str, list[Cells]]:
    """Return the measured rows of a table by the name of the benchmark's row."""
    rows: dict[str, list[Cells]] = {}
    for line in text.partition(HEAD)[2].partition("\n\n")[0].splitlines():
        cells = tuple(cell.strip() for cell in line.strip("|").split("|"))
        if cells[1] != NOT_MEASURED:
            rows.setdefault(cells[0], []).append(cells)
    return rows


def _cells(name: str, row: Row) -> Cells:
    cells = (name, f"{row.name}: {row.conditions}", row.measured, row.reference, row.target, row.verdict)
    return tuple(cell.replace("|", "/") for cell in cells)


def _misses(lines: Sequence[Cells]) -> str:
    missed = [what for _, what, *_, verdict in lines if verdict == "missed"]
    return f"Missed: {'; '.join(missed)}.\n" if missed else "No target is missed.\n"
