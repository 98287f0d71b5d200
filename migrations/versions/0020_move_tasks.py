"""Move tasks: a background loop moves the messages of a queue to other queues. Servers from before it leave them alone."""

from collections.abc import Sequence

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import mysql

revision = "0020"
down_revision: str | None = "0019"
branch_labels: Sequence[str] | None = None
depends_on: Sequence[str] | None = None

TABLE = "move_task"
ID = sa.String(128).with_variant(mysql.VARCHAR(128, collation="utf8mb4_bin"), "mysql", "mariadb")
LONG = sa.Text().with_variant(mysql.MEDIUMTEXT(collation="utf8mb4_bin"), "mysql", "mariadb")
INDEXES = {"move_task_queue": ["queue_id", "started_at"], "move_task_due": ["state", "next_at"]}


def upgrade() -> None:
    # MariaDB and MySQL commit each step by itself, so a run that was cut off there finds some of them done.
    if not sa.inspect(op.get_bind()).has_table(TABLE):
        op.create_table(
            TABLE,
            sa.Column("id", ID, primary_key=True),
            sa.Column("queue_id", sa.Integer, nullable=False),
            sa.Column("request", LONG, nullable=False),
            sa.Column("state", sa.SmallInteger, nullable=False),
            sa.Column("position", sa.BigInteger, nullable=False),
            sa.Column("last_number", sa.BigInteger, nullable=False),
            sa.Column("found", sa.BigInteger, nullable=False),
            sa.Column("moved", sa.BigInteger, nullable=False),
            sa.Column("started_at", sa.BigInteger, nullable=False),
            sa.Column("progressed_at", sa.BigInteger, nullable=False),
            sa.Column("next_at", sa.BigInteger, nullable=False),
            sa.Column("ended_at", sa.BigInteger),
            sa.Column("reason", LONG),
            mysql_charset="utf8mb4",
            mysql_engine="InnoDB",
        )
    present = {index["name"] for index in sa.inspect(op.get_bind()).get_indexes(TABLE)}
    for name, columns in INDEXES.items():
        if name not in present:
            op.create_index(name, TABLE, columns)


def downgrade() -> None:
    op.drop_table(TABLE)
