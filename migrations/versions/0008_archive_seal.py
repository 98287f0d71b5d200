"""The batch of an archived message in a narrow table of its own, because sealing would rewrite the message.

Servers that know the table write 0 as `archive.export_batch`. Servers that do not know it write null there, and the
number of the batch when they seal, and go on: they neither see nor seal the messages of the others. They may record a
batch as removed whose messages they could not remove, and `rows_until` shows it. No row is touched.
"""

from collections.abc import Sequence

import sqlalchemy as sa
from alembic import op

revision = "0008"
down_revision: str | None = "0007"
branch_labels: Sequence[str] | None = None
depends_on: Sequence[str] | None = None

NUMBER = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    # MariaDB and MySQL commit each step by itself, so a run that was cut off there finds some of them done.
    if not sa.inspect(op.get_bind()).has_table("archive_seal"):
        op.create_table(
            "archive_seal",
            sa.Column("sequence_number", NUMBER, primary_key=True, autoincrement=False),
            sa.Column("remove_at", sa.BigInteger, nullable=False),
            sa.Column("export_batch", sa.BigInteger),
            mysql_charset="utf8mb4",
            mysql_engine="InnoDB",
        )
    if "archive_seal_batch" not in indexes("archive_seal"):
        op.create_index("archive_seal_batch", "archive_seal", ["export_batch", "remove_at"])
    if "rows_until" not in {column["name"] for column in sa.inspect(op.get_bind()).get_columns("export_batch")}:
        op.add_column("export_batch", sa.Column("rows_until", sa.BigInteger))
    if "export_batch_rows_until" not in indexes("export_batch"):
        kept = sa.text("rows_until IS NOT NULL")
        op.create_index(
            "export_batch_rows_until", "export_batch", ["rows_until"], postgresql_where=kept, sqlite_where=kept
        )


def indexes(table: str) -> set[str | None]:
    """Return the names of the indexes that a table has."""
    return {index["name"] for index in sa.inspect(op.get_bind()).get_indexes(table)}


RETURN_BATCHES = """
UPDATE archive
SET export_batch = (SELECT s.export_batch FROM archive_seal AS s WHERE s.sequence_number = archive.sequence_number)
WHERE export_batch = 0
"""


def downgrade() -> None:
    op.execute(RETURN_BATCHES)
    op.drop_index("export_batch_rows_until", "export_batch")
    op.drop_column("export_batch", "rows_until")
    op.drop_table("archive_seal")
