"""The archive in sealed batches: the number of its batch in each archived message, and what each batch is made of.

A column that may be null is added without touching the rows. The index is built once over all of them, and on
PostgreSQL and SQLite completions wait for it. Nothing looks for archived messages by `remove_at` alone any more.
"""

from collections.abc import Sequence

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision: str | None = "0001"
branch_labels: Sequence[str] | None = None
depends_on: Sequence[str] | None = None

NUMBER = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    # MariaDB and MySQL commit each step by itself, so a run that was cut off there finds some of them done.
    if "export_batch" not in {column["name"] for column in sa.inspect(op.get_bind()).get_columns("archive")}:
        op.add_column("archive", sa.Column("export_batch", sa.BigInteger))
    if "archive_export" not in indexes("archive"):
        op.create_index("archive_export", "archive", ["export_batch", "remove_at"])
    if "archive_remove_at" in indexes("archive"):
        op.drop_index("archive_remove_at", "archive")
    create_export_batch()


def create_export_batch() -> None:
    if not sa.inspect(op.get_bind()).has_table("export_batch"):
        op.create_table(
            "export_batch",
            sa.Column("number", NUMBER, primary_key=True, autoincrement=False),
            sa.Column("row_count", sa.Integer, nullable=False),
            sa.Column("digest", sa.String(64), nullable=False),
            sa.Column("sealed_at", sa.BigInteger, nullable=False),
            sa.Column("remove_at", sa.BigInteger, nullable=False),
            sa.Column("removed_at", sa.BigInteger),
            sa.Column("removal", sa.String(64)),
            mysql_charset="utf8mb4",
            mysql_engine="InnoDB",
        )
    if "export_batch_remove_at" not in indexes("export_batch"):
        op.create_index("export_batch_remove_at", "export_batch", ["removed_at", "remove_at"])


def indexes(table: str) -> set[str | None]:
    """The names of the indexes that a table has."""
    return {index["name"] for index in sa.inspect(op.get_bind()).get_indexes(table)}


def downgrade() -> None:
    op.drop_table("export_batch")
    op.create_index("archive_remove_at", "archive", ["remove_at"])
    op.drop_index("archive_export", "archive")
    op.drop_column("archive", "export_batch")
