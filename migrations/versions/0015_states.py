"""Versioned states: the state of each key, and its versions."""

from collections.abc import Sequence

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import mysql

revision = "0015"
down_revision: str | None = "0014"
branch_labels: Sequence[str] | None = None
depends_on: Sequence[str] | None = None

NUMBER = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
NAME = (
    sa.String(128)
    .with_variant(mysql.VARCHAR(128, collation="utf8mb4_bin"), "mysql", "mariadb")
    .with_variant(sa.String(128, collation="C"), "postgresql")
)
MESSAGE_ID = sa.String(128).with_variant(mysql.VARBINARY(512), "mysql", "mariadb")
BYTES = sa.LargeBinary().with_variant(mysql.LONGBLOB(), "mysql", "mariadb")
DIGEST = sa.LargeBinary(32).with_variant(mysql.BINARY(32), "mysql", "mariadb")
TEXT = sa.Text().with_variant(mysql.MEDIUMTEXT(collation="utf8mb4_bin"), "mysql", "mariadb")


def upgrade() -> None:
    # MariaDB and MySQL commit each step by itself, so a run that was cut off there finds some of them done.
    if not has_table("state"):
        op.create_table(
            "state",
            sa.Column("id", NUMBER, primary_key=True, autoincrement=True),
            sa.Column("state_key", NAME, unique=True),
            sa.Column("number", sa.BigInteger, nullable=False),
            sa.Column("updated_at", sa.BigInteger, nullable=False),
            mysql_charset="utf8mb4",
            mysql_engine="InnoDB",
        )
    if not has_table("state_version"):
        op.create_table(
            "state_version",
            sa.Column("id", NUMBER, primary_key=True, autoincrement=True),
            sa.Column("state_id", sa.BigInteger, nullable=False),
            sa.Column("number", sa.BigInteger, nullable=False),
            sa.Column("message_id", MESSAGE_ID),
            sa.Column("value", BYTES, nullable=False),
            sa.Column("metadata", BYTES, nullable=False),
            sa.Column("result_digest", DIGEST, nullable=False),
            sa.Column("receipts", TEXT, nullable=False),
            sa.Column("created_at", sa.BigInteger, nullable=False),
            sa.Column("replaced_at", sa.BigInteger),
            mysql_charset="utf8mb4",
            mysql_engine="InnoDB",
        )
    add_index("state_version_number", "state_id", "number", unique=True)
    add_index("state_version_message", "state_id", "message_id", unique=True)
    is_replaced = sa.text("replaced_at IS NOT NULL")
    add_index("state_version_replaced_at", "replaced_at", "id", postgresql_where=is_replaced, sqlite_where=is_replaced)


def has_table(name: str) -> bool:
    return sa.inspect(op.get_bind()).has_table(name)


def add_index(name: str, *columns: str, **options: object) -> None:
    if name not in {present["name"] for present in sa.inspect(op.get_bind()).get_indexes("state_version")}:
        op.create_index(name, "state_version", list(columns), **options)  # pyright: ignore[reportArgumentType]


def downgrade() -> None:
    op.drop_table("state_version")
    op.drop_table("state")
