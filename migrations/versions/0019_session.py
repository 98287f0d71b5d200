"""Sessions of people who have signed in to the console with an API key."""

from collections.abc import Sequence

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import mysql

revision = "0019"
down_revision: str | None = "0018"
branch_labels: Sequence[str] | None = None
depends_on: Sequence[str] | None = None

TABLE = "session"
INDEX = "session_expires_at"


def upgrade() -> None:
    # MariaDB and MySQL commit each step by itself, so a run that was cut off there finds some of them done.
    if not sa.inspect(op.get_bind()).has_table(TABLE):
        op.create_table(
            TABLE,
            sa.Column(
                "secret_hash", sa.LargeBinary(32).with_variant(mysql.BINARY(32), "mysql", "mariadb"), primary_key=True
            ),
            sa.Column("key_id", sa.String(64), nullable=False),
            sa.Column("created_at", sa.BigInteger, nullable=False),
            sa.Column("expires_at", sa.BigInteger, nullable=False),
            mysql_charset="utf8mb4",
            mysql_engine="InnoDB",
        )
    if INDEX not in {index["name"] for index in sa.inspect(op.get_bind()).get_indexes(TABLE)}:
        op.create_index(INDEX, TABLE, ["expires_at"])


def downgrade() -> None:
    op.drop_table(TABLE)
