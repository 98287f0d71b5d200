"""Groups: how many messages of a group a queue has in flight, and which messages are blocked behind others."""

from collections.abc import Sequence

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import mysql

revision = "0010"
down_revision: str | None = "0009"
branch_labels: Sequence[str] | None = None
depends_on: Sequence[str] | None = None

GROUP_ID = sa.String(128).with_variant(mysql.VARCHAR(128, collation="utf8mb4_bin"), "mysql", "mariadb")

ADD_BUCKETS = """
INSERT INTO group_lock (bucket)
WITH RECURSIVE bucket (number) AS (SELECT 0 UNION ALL SELECT number + 1 FROM bucket WHERE number < 127)
SELECT 128 * high.number + low.number FROM bucket AS high CROSS JOIN bucket AS low
"""
"""16,384 rows. MariaDB and MySQL end a recursion after 1,000 steps."""


def upgrade() -> None:
    # MariaDB and MySQL commit each step by itself, so a run that was cut off there finds some of them done.
    add_column("queue", sa.Column("group_in_flight", sa.Integer))
    add_column("queue", sa.Column("admit_after", GROUP_ID))
    add_column("message", sa.Column("in_group", sa.SmallInteger))
    add_column("depth", sa.Column("blocked", sa.Integer, nullable=False, server_default=sa.text("0")))
    add_index("queue_admit_after", "queue", "admit_after")
    add_index("message_group", "message", "in_group", "queue_id", "group_id", "sequence_number")
    if not sa.inspect(op.get_bind()).has_table("group_lock"):
        op.create_table(
            "group_lock",
            sa.Column("bucket", sa.Integer, primary_key=True, autoincrement=False),
            mysql_charset="utf8mb4",
            mysql_engine="InnoDB",
        )
    if op.get_bind().dialect.name != "sqlite" and not op.get_bind().scalar(sa.text("SELECT COUNT(*) FROM group_lock")):
        op.execute(ADD_BUCKETS)


def add_column(table: str, column: "sa.Column[int]") -> None:
    if column.name not in {present["name"] for present in sa.inspect(op.get_bind()).get_columns(table)}:
        op.add_column(table, column)


def add_index(name: str, table: str, *columns: str) -> None:
    """Add an index of the rows whose first column is not null. MariaDB and MySQL have no partial index."""
    if name not in {present["name"] for present in sa.inspect(op.get_bind()).get_indexes(table)}:
        is_set = sa.text(f"{columns[0]} IS NOT NULL")
        op.create_index(name, table, list(columns), postgresql_where=is_set, sqlite_where=is_set)


def downgrade() -> None:
    op.execute("UPDATE message SET state = 1 WHERE state = 7")
    op.drop_table("group_lock")
    op.drop_index("queue_admit_after", "queue")
    op.drop_index("message_group", "message")
    op.drop_column("depth", "blocked")
    op.drop_column("message", "in_group")
    op.drop_column("queue", "admit_after")
    op.drop_column("queue", "group_in_flight")
