"""Transactions: sends and settlements that wait for a commit, and how transactions have ended.

No other table changes, so servers from before this migration go on. They do not know that a settlement waits. If one
of them settles its message, the commit is refused as a whole.
"""

from collections.abc import Sequence

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import mysql

revision = "0014"
down_revision: str | None = "0013"
branch_labels: Sequence[str] | None = None
depends_on: Sequence[str] | None = None

NAME = (
    sa.String(128)
    .with_variant(mysql.VARCHAR(128, collation="utf8mb4_bin"), "mysql", "mariadb")
    .with_variant(sa.String(128, collation="C"), "postgresql")
)
ID = sa.String(128).with_variant(mysql.VARCHAR(128, collation="utf8mb4_bin"), "mysql", "mariadb")
LONG = sa.Text().with_variant(mysql.MEDIUMTEXT(collation="utf8mb4_bin"), "mysql", "mariadb")
SECRET = sa.LargeBinary(16).with_variant(mysql.BINARY(16), "mysql", "mariadb")
BODY = sa.LargeBinary().with_variant(mysql.LONGBLOB(), "mysql", "mariadb")


def upgrade() -> None:
    # MariaDB and MySQL commit each step by itself, so a run that was cut off there finds some of them done.
    create_table(
        "message_transaction",
        sa.Column("id", ID, primary_key=True),
        sa.Column("principal", ID, nullable=False),
        sa.Column("state", sa.SmallInteger, nullable=False),
        sa.Column("opened_at", sa.BigInteger, nullable=False),
        sa.Column("expires_at", sa.BigInteger, nullable=False),
        sa.Column("ended_at", sa.BigInteger),
        sa.Column("member_count", sa.Integer, nullable=False),
        sa.Column("member_bytes", sa.BigInteger, nullable=False),
        sa.Column("answer", LONG),
        sa.Column("cause", sa.String(64)),
        sa.Column("member", LONG),
        sa.Column("remove_at", sa.BigInteger),
    )
    create_table(
        "transaction_member",
        sa.Column("transaction_id", ID, primary_key=True),
        sa.Column("place", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("queue", NAME, nullable=False),
        sa.Column("message_id", ID),
        sa.Column("due_at", sa.BigInteger),
        sa.Column("expires_at", sa.BigInteger),
        sa.Column("sequence_number", sa.BigInteger),
        sa.Column("lock_token", SECRET),
        sa.Column("outcome", sa.String(64)),
        sa.Column("member_bytes", sa.BigInteger, nullable=False),
        sa.Column("content", LONG, nullable=False),
        sa.Column("body", BODY),
    )
    create_index("message_transaction_deadline", "message_transaction", "state", "expires_at")
    create_index("message_transaction_remove_at", "message_transaction", "remove_at")
    create_index("transaction_member_lock", "transaction_member", "sequence_number", "lock_token", unique=True)


def create_table(name: str, *columns: "sa.Column[object]") -> None:
    if not sa.inspect(op.get_bind()).has_table(name):
        op.create_table(name, *columns, mysql_charset="utf8mb4", mysql_engine="InnoDB")


def create_index(name: str, table: str, *columns: str, unique: bool = False) -> None:
    if name not in {index["name"] for index in sa.inspect(op.get_bind()).get_indexes(table)}:
        op.create_index(name, table, list(columns), unique=unique)


def downgrade() -> None:
    op.drop_table("transaction_member")
    op.drop_table("message_transaction")
