"""Topics, and the subscriptions that copy their messages to queues."""

from collections.abc import Sequence

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import mysql

revision = "0012"
down_revision: str | None = "0011"
branch_labels: Sequence[str] | None = None
depends_on: Sequence[str] | None = None

NAME = (
    sa.String(128)
    .with_variant(mysql.VARCHAR(128, collation="utf8mb4_bin"), "mysql", "mariadb")
    .with_variant(sa.String(128, collation="C"), "postgresql")
)
LONG_TEXT = sa.Text().with_variant(mysql.MEDIUMTEXT(collation="utf8mb4_bin"), "mysql", "mariadb")


def upgrade() -> None:
    # MariaDB and MySQL commit each step by itself, so a run that was cut off there finds some of them done.
    tables = set(sa.inspect(op.get_bind()).get_table_names())
    if "topic" not in tables:
        op.create_table(
            "topic",
            sa.Column("id", sa.Integer, primary_key=True, autoincrement=True),
            sa.Column("name", NAME, nullable=False, unique=True),
            sa.Column("description", LONG_TEXT, nullable=False),
            *times_and_version(),
            mysql_charset="utf8mb4",
            mysql_engine="InnoDB",
            sqlite_autoincrement=True,
        )
    if "subscription" not in tables:
        op.create_table(
            "subscription",
            sa.Column("id", sa.Integer, primary_key=True, autoincrement=True),
            sa.Column("topic_id", sa.Integer, nullable=False),
            sa.Column("name", NAME, nullable=False),
            sa.Column("target_queue", NAME, nullable=False),
            sa.Column("filter", LONG_TEXT),
            sa.Column("set_properties", LONG_TEXT, nullable=False),
            sa.Column("remove_properties", LONG_TEXT, nullable=False),
            *times_and_version(),
            sa.UniqueConstraint("topic_id", "name", name="subscription_name"),
            mysql_charset="utf8mb4",
            mysql_engine="InnoDB",
            sqlite_autoincrement=True,
        )
    present = {index["name"] for index in sa.inspect(op.get_bind()).get_indexes("subscription")}
    if "subscription_target_queue" not in present:
        op.create_index("subscription_target_queue", "subscription", ["target_queue"])


def times_and_version() -> "list[sa.Column[int]]":
    return [
        sa.Column("version", sa.Integer, nullable=False),
        sa.Column("created_at", sa.BigInteger, nullable=False),
        sa.Column("updated_at", sa.BigInteger, nullable=False),
    ]


def downgrade() -> None:
    op.drop_table("subscription")
    op.drop_table("topic")
