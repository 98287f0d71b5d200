"""What is kept of a deleted queue, so that the messages it held go to the archive under its name."""

from collections.abc import Sequence

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import mysql

revision = "0005"
down_revision: str | None = "0004"
branch_labels: Sequence[str] | None = None
depends_on: Sequence[str] | None = None

NAME = (
    sa.String(128)
    .with_variant(mysql.VARCHAR(128, collation="utf8mb4_bin"), "mysql", "mariadb")
    .with_variant(sa.String(128, collation="C"), "postgresql")
)


def upgrade() -> None:
    # MariaDB and MySQL commit each step by itself, so a run that was cut off there finds some of them done.
    if not sa.inspect(op.get_bind()).has_table("deleted_queue"):
        op.create_table(
            "deleted_queue",
            sa.Column("id", sa.Integer, primary_key=True, autoincrement=False),
            sa.Column("name", NAME, nullable=False),
            sa.Column("archive_retention", sa.BigInteger, nullable=False),
            sa.Column("deleted_at", sa.BigInteger, nullable=False),
            mysql_charset="utf8mb4",
            mysql_engine="InnoDB",
        )


def downgrade() -> None:
    op.drop_table("deleted_queue")
