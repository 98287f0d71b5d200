"""The tables as the first release has them: queues, messages, archive, tombstones, attempts, recent ids and API keys.

MariaDB and MySQL commit every table by itself, so a run that is cut off there finds some of them when it is repeated;
that is why nothing here minds what exists already.
"""

from collections.abc import Sequence

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import mysql

revision = "0001"
down_revision: str | None = None
branch_labels: Sequence[str] | None = None
depends_on: Sequence[str] | None = None

BINARY_ORDER = "utf8mb4_bin"
SHORT = sa.String(128).with_variant(mysql.VARCHAR(128, collation=BINARY_ORDER), "mysql", "mariadb")
NAME = SHORT.with_variant(sa.String(128, collation="C"), "postgresql")
EXACT = sa.String(128).with_variant(mysql.VARBINARY(512), "mysql", "mariadb")
LONG = sa.Text().with_variant(mysql.MEDIUMTEXT(collation=BINARY_ORDER), "mysql", "mariadb")
NUMBER = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
BODY = sa.LargeBinary().with_variant(mysql.LONGBLOB(), "mysql", "mariadb")
SECRET = sa.LargeBinary(16).with_variant(mysql.BINARY(16), "mysql", "mariadb")
DIGEST = sa.LargeBinary(32).with_variant(mysql.BINARY(32), "mysql", "mariadb")


def upgrade() -> None:
    create_queue()
    create_message()
    create_depth()
    create_archive()
    create_settlement()
    create_attempt()
    create_recent_id()
    create_api_key()


def create_queue() -> None:
    create_table(
        "queue",
        sa.Column("id", sa.Integer, primary_key=True, autoincrement=True),
        sa.Column("name", NAME, nullable=False, unique=True),
        sa.Column("settings", LONG, nullable=False),
        sa.Column("version", sa.Integer, nullable=False),
        sa.Column("created_at", sa.BigInteger, nullable=False),
        sa.Column("updated_at", sa.BigInteger, nullable=False),
        sqlite_autoincrement=True,
    )


def create_message() -> None:
    create_table(
        "message",
        sa.Column("sequence_number", NUMBER, primary_key=True, autoincrement=True),
        sa.Column("queue_id", sa.Integer, nullable=False),
        sa.Column("state", sa.SmallInteger, nullable=False),
        sa.Column("home_state", sa.SmallInteger, nullable=False),
        sa.Column("priority", sa.SmallInteger, nullable=False),
        sa.Column("enqueued_at", sa.BigInteger, nullable=False),
        sa.Column("available_at", sa.BigInteger, nullable=False),
        sa.Column("expires_at", sa.BigInteger),
        sa.Column("delivery_count", sa.Integer, nullable=False),
        sa.Column("failure_count", sa.Integer, nullable=False),
        sa.Column("lock_token", SECRET),
        sa.Column("locked_until", sa.BigInteger),
        sa.Column("lock_generation", sa.Integer, nullable=False),
        sa.Column("receiver_id", SHORT),
        sa.Column("first_delivered_at", sa.BigInteger),
        sa.Column("last_delivered_at", sa.BigInteger),
        sa.Column("last_failure", sa.Text),
        *content(),
        sa.Column("dead_letter_reason", sa.Text),
        sa.Column("dead_letter_description", sa.Text),
        sa.Column("dead_lettered_at", sa.BigInteger),
        sqlite_autoincrement=True,
    )
    order = ["queue_id", "state", sa.text("priority DESC"), "available_at", "sequence_number"]
    create_index("message_next", "message", order, where="state = 1")
    create_index("message_by_state", "message", ["queue_id", "state", "sequence_number"], postgresql_where="state > 0")
    create_index("message_lock_end", "message", ["locked_until"], where="locked_until IS NOT NULL")
    create_index("message_due", "message", ["state", "available_at"], where="state = 3")
    create_index("message_expiry", "message", ["state", "expires_at"], where="expires_at IS NOT NULL")


def create_depth() -> None:
    create_table(
        "depth",
        sa.Column("queue_id", sa.Integer, nullable=False),
        *(
            sa.Column(name, sa.Integer, nullable=False, server_default=sa.text("0"))
            for name in ("total", "scheduled", "deferred", "dead_lettered")
        ),
    )
    create_index("depth_queue", "depth", ["queue_id"])


def create_archive() -> None:
    create_table(
        "archive",
        sa.Column("sequence_number", NUMBER, primary_key=True, autoincrement=False),
        sa.Column("queue_id", sa.Integer, nullable=False),
        sa.Column("queue", NAME, nullable=False),
        sa.Column("outcome", sa.String(64), nullable=False),
        sa.Column("settled_at", sa.BigInteger, nullable=False),
        sa.Column("remove_at", sa.BigInteger, nullable=False),
        sa.Column("lock_token", SECRET),
        sa.Column("receiver_id", SHORT),
        sa.Column("priority", sa.SmallInteger, nullable=False),
        sa.Column("enqueued_at", sa.BigInteger, nullable=False),
        sa.Column("available_at", sa.BigInteger, nullable=False),
        sa.Column("expires_at", sa.BigInteger),
        sa.Column("first_delivered_at", sa.BigInteger),
        sa.Column("last_delivered_at", sa.BigInteger),
        sa.Column("delivery_count", sa.Integer, nullable=False),
        sa.Column("failure_count", sa.Integer, nullable=False),
        sa.Column("last_failure", sa.Text),
        *content(),
        sa.Column("dead_letter_reason", sa.Text),
        sa.Column("dead_letter_description", sa.Text),
    )
    create_index("archive_remove_at", "archive", ["remove_at"])


def create_settlement() -> None:
    create_table(
        "settlement",
        sa.Column("sequence_number", NUMBER, primary_key=True, autoincrement=False),
        sa.Column("lock_token", SECRET, primary_key=True),
        sa.Column("queue_id", sa.Integer, nullable=False),
        sa.Column("outcome", sa.String(64), nullable=False),
        sa.Column("state", sa.SmallInteger),
        sa.Column("settled_at", sa.BigInteger, nullable=False),
        sa.Column("remove_at", sa.BigInteger, nullable=False),
    )
    create_index("settlement_remove_at", "settlement", ["remove_at"])


def create_attempt() -> None:
    create_table(
        "attempt",
        sa.Column("attempt_key", DIGEST, primary_key=True),
        sa.Column("fingerprint", DIGEST, nullable=False),
        sa.Column("answer", LONG),
        sa.Column("remove_at", sa.BigInteger, nullable=False),
    )
    create_index("attempt_remove_at", "attempt", ["remove_at"])


def create_recent_id() -> None:
    create_table(
        "recent_id",
        sa.Column("queue_id", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("message_id", EXACT, primary_key=True),
        sa.Column("sequence_number", sa.BigInteger, nullable=False),
        sa.Column("state", sa.SmallInteger, nullable=False),
        sa.Column("enqueued_at", sa.BigInteger, nullable=False),
        sa.Column("remove_at", sa.BigInteger, nullable=False),
    )
    create_index("recent_id_remove_at", "recent_id", ["remove_at"])


def create_api_key() -> None:
    create_table(
        "api_key",
        sa.Column("id", sa.String(64), primary_key=True),
        sa.Column("principal", SHORT, nullable=False),
        sa.Column("secret_hash", DIGEST, nullable=False, unique=True),
        sa.Column("rights", sa.Text, nullable=False),
        sa.Column("created_at", sa.BigInteger, nullable=False),
        sa.Column("expires_at", sa.BigInteger),
        sa.Column("last_used_at", sa.BigInteger),
        sa.Column("revoked_at", sa.BigInteger),
    )
    create_index("api_key_principal", "api_key", ["principal"])


def content() -> list[sa.Column[object]]:
    """What the sender gave, in a queue and in the archive alike."""
    return [
        sa.Column("message_id", SHORT, nullable=False),
        sa.Column("group_id", SHORT),
        sa.Column("headers", LONG),
        sa.Column("properties", LONG),
        sa.Column("body_kind", sa.SmallInteger, nullable=False),
        sa.Column("body", BODY, nullable=False),
    ]


def create_table(name: str, *columns: sa.Column[object], **options: object) -> None:
    """Create a table unless it is there. Of itself, a table of MariaDB would have the character set of its database."""
    if not sa.inspect(op.get_bind()).has_table(name):
        op.create_table(name, *columns, mysql_charset="utf8mb4", mysql_engine="InnoDB", **options)


def create_index(
    name: str, table: str, columns: list[object], where: str | None = None, postgresql_where: str | None = None
) -> None:
    """Create an index unless it is there; only of the rows where the condition holds, if the engine knows such a thing."""
    present = {index["name"] for index in sa.inspect(op.get_bind()).get_indexes(table)}
    if name not in present:
        condition = None if where is None else sa.text(where)
        on_postgresql = condition if postgresql_where is None else sa.text(postgresql_where)
        op.create_index(name, table, columns, postgresql_where=on_postgresql, sqlite_where=condition)


def downgrade() -> None:
    for name in ("api_key", "recent_id", "attempt", "settlement", "archive", "depth", "message", "queue"):
        op.drop_table(name)
