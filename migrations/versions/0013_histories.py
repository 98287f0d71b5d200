"""Histories: one row for each transition of a message, in queues that record them."""

from collections.abc import Sequence

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import mysql

revision = "0013"
down_revision: str | None = "0012"
branch_labels: Sequence[str] | None = None
depends_on: Sequence[str] | None = None

NUMBER = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
ID = sa.String(128).with_variant(mysql.VARCHAR(128, collation="utf8mb4_bin"), "mysql", "mariadb")
SECRET = sa.LargeBinary(16).with_variant(mysql.BINARY(16), "mysql", "mariadb")


def upgrade() -> None:
    # MariaDB and MySQL commit each step by itself, so a run that was cut off there finds some of them done.
    if "history_retention" not in {column["name"] for column in sa.inspect(op.get_bind()).get_columns("queue")}:
        op.add_column("queue", sa.Column("history_retention", sa.BigInteger))
    if not sa.inspect(op.get_bind()).has_table("message_event"):
        op.create_table(
            "message_event",
            sa.Column("id", NUMBER, primary_key=True, autoincrement=True),
            sa.Column("sequence_number", sa.BigInteger, nullable=False),
            sa.Column("queue_id", sa.Integer, nullable=False),
            sa.Column("happened_at", sa.BigInteger, nullable=False),
            sa.Column("event", sa.String(64), nullable=False),
            sa.Column("state", sa.SmallInteger),
            sa.Column("outcome", sa.String(64)),
            sa.Column("lock_token", SECRET),
            sa.Column("receiver_id", ID),
            sa.Column("reason", sa.Text),
            sa.Column("delivery_count", sa.Integer),
            sa.Column("remove_at", sa.BigInteger, nullable=False),
            mysql_charset="utf8mb4",
            mysql_engine="InnoDB",
            sqlite_autoincrement=True,
        )
    present = {index["name"] for index in sa.inspect(op.get_bind()).get_indexes("message_event")}
    if "message_event_message" not in present:
        columns, is_any = ["sequence_number", "id"], sa.text("queue_id > 0")
        op.create_index("message_event_message", "message_event", columns, postgresql_where=is_any)
    if "message_event_remove_at" not in present:
        op.create_index("message_event_remove_at", "message_event", ["remove_at"])


def downgrade() -> None:
    op.drop_table("message_event")
    op.drop_column("queue", "history_retention")
