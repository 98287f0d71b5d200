"""What shows that nothing was lost or changed: digests of messages, what a batch's digest is of, and accepted messages.

The new columns may be null or have a default, so they are added without touching the rows, and a server that does not
know them goes on. The new table is empty: what was accepted before has no digest and does not count.
"""

from collections.abc import Sequence

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import mysql

revision = "0004"
down_revision: str | None = "0003"
branch_labels: Sequence[str] | None = None
depends_on: Sequence[str] | None = None

NAME = (
    sa.String(128)
    .with_variant(mysql.VARCHAR(128, collation="utf8mb4_bin"), "mysql", "mariadb")
    .with_variant(sa.String(128, collation="C"), "postgresql")
)
CONTENT_DIGEST = sa.LargeBinary(16).with_variant(mysql.BINARY(16), "mysql", "mariadb")


def upgrade() -> None:
    # MariaDB and MySQL commit each step by itself, so a run that was cut off there finds some of them done.
    add_column("message", sa.Column("content_digest", CONTENT_DIGEST))
    add_column("archive", sa.Column("content_digest", CONTENT_DIGEST))
    add_column("export_batch", sa.Column("digest_version", sa.Integer, nullable=False, server_default=sa.text("1")))
    if not sa.inspect(op.get_bind()).has_table("accepted_count"):
        create_accepted_count()


def create_accepted_count() -> None:
    zero = sa.text("0")
    op.create_table(
        "accepted_count",
        sa.Column("first_number", sa.BigInteger, primary_key=True, autoincrement=False),
        sa.Column("queue_id", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("day", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("queue", NAME, nullable=False),
        sa.Column("accepted", sa.BigInteger, nullable=False, server_default=zero),
        sa.Column("moved", sa.BigInteger, nullable=False, server_default=zero),
        sa.Column("unarchived", sa.BigInteger, nullable=False, server_default=zero),
        mysql_charset="utf8mb4",
        mysql_engine="InnoDB",
    )


def add_column(table: str, column: sa.Column[object]) -> None:
    """Add a column unless it is there."""
    if column.name not in {present["name"] for present in sa.inspect(op.get_bind()).get_columns(table)}:
        op.add_column(table, column)


def downgrade() -> None:
    op.drop_table("accepted_count")
    op.drop_column("export_batch", "digest_version")
    op.drop_column("archive", "content_digest")
    op.drop_column("message", "content_digest")
