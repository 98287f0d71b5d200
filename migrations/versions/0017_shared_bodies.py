"""Shared bodies: the copies of a published message refer to one body."""

from collections.abc import Sequence

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import mysql

revision = "0017"
down_revision: str | None = "0016"
branch_labels: Sequence[str] | None = None
depends_on: Sequence[str] | None = None

ID = sa.String(128).with_variant(mysql.VARCHAR(128, collation="utf8mb4_bin"), "mysql", "mariadb")
BODY = sa.LargeBinary().with_variant(mysql.LONGBLOB(), "mysql", "mariadb")
IS_SHARED = sa.text("shared_body_id IS NOT NULL")


def upgrade() -> None:
    # MariaDB and MySQL commit each step by itself, so a run that was cut off there finds some of them done.
    if not sa.inspect(op.get_bind()).has_table("shared_body"):
        op.create_table(
            "shared_body",
            sa.Column("id", ID, primary_key=True),
            sa.Column("body", BODY, nullable=False),
            mysql_charset="utf8mb4",
            mysql_engine="InnoDB",
        )
    for table in ("message", "archive"):
        present = {column["name"] for column in sa.inspect(op.get_bind()).get_columns(table)}
        for column in (sa.Column("shared_body_id", ID), sa.Column("shared_body_bytes", sa.BigInteger)):
            if column.name not in present:
                op.add_column(table, column)
        index = f"{table}_shared_body"
        if index not in {found["name"] for found in sa.inspect(op.get_bind()).get_indexes(table)}:
            op.create_index(index, table, ["shared_body_id"], postgresql_where=IS_SHARED, sqlite_where=IS_SHARED)
    # The targets of subscriptions, as `SHARED_BODIES_LEVEL` says.
    op.execute(
        "UPDATE queue SET feature_level = 7 WHERE feature_level < 7 AND name IN (SELECT target_queue FROM subscription)"
    )


def downgrade() -> None:
    for table in ("message", "archive"):
        # An older server finds each body in its row.
        shared = f"SELECT shared_body.body FROM shared_body WHERE shared_body.id = {table}.shared_body_id"
        op.execute(f"UPDATE {table} SET body = ({shared}) WHERE shared_body_id IS NOT NULL")
        op.drop_index(f"{table}_shared_body", table)
        op.drop_column(table, "shared_body_bytes")
        op.drop_column(table, "shared_body_id")
    op.drop_table("shared_body")
