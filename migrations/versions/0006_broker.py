"""What tells a database from every other one: a random id, by which a broker has its prefix in Redis for itself."""

import secrets
from collections.abc import Sequence

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision: str | None = "0005"
branch_labels: Sequence[str] | None = None
depends_on: Sequence[str] | None = None

BROKER = sa.table("broker", sa.column("id", sa.String))


def upgrade() -> None:
    # MariaDB and MySQL commit each step by itself, so a run that was cut off there finds some of them done.
    connection = op.get_bind()
    if not sa.inspect(connection).has_table("broker"):
        op.create_table(
            "broker",
            sa.Column("id", sa.String(64), primary_key=True),
            mysql_charset="utf8mb4",
            mysql_engine="InnoDB",
        )
    if connection.execute(sa.select(BROKER)).first() is None:
        op.bulk_insert(BROKER, [{"id": secrets.token_hex(16)}])


def downgrade() -> None:
    op.drop_table("broker")
