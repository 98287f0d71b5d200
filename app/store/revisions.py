"""The revisions of the schema: the numbers with which the file names of the migrations begin."""

from pathlib import Path

MIGRATIONS = Path(__file__).resolve().parents[2] / "migrations"


class MigrationsMissing(Exception):
    """The folder of migrations beside the service's code is missing."""


def revisions(migrations: Path = MIGRATIONS) -> list[str]:
    """Return every revision of this version, the newest last. Refuses with `MigrationsMissing`."""
    known = sorted(path.name.partition("_")[0] for path in migrations.glob("versions/[0-9]*_*.py"))
    if not known:
        raise MigrationsMissing(f"there are no migrations in {migrations}")
    return known
