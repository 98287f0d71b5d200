"""The archived messages that a restore can bring back, in a narrow table of their own.

Only a purge, a cancellation or a deleted queue writes it, so other messages pay nothing for it, and a sealed row of the
archive never changes. Messages that were purged before this migration, or by a server from before it, are not in it.
"""

from collections.abc import Sequence

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import mysql

revision = "0011"
down_revision: str | None = "0010"
branch_labels: Sequence[str] | None = None
depends_on: Sequence[str] | None = None

NUMBER = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
NAME = (
    sa.String(128)
    .with_variant(mysql.VARCHAR(128, collation="utf8mb4_bin"), "mysql", "mariadb")
    .with_variant(sa.String(128, collation="C"), "postgresql")
)


def upgrade() -> None:
    # MariaDB and MySQL commit each step by itself, so a run that was cut off there finds some of them done.
    if not sa.inspect(op.get_bind()).has_table("restorable"):
        op.create_table(
            "restorable",
            sa.Column("sequence_number", NUMBER, primary_key=True, autoincrement=False),
            sa.Column("queue", NAME, nullable=False),
            sa.Column("settled_at", sa.BigInteger, nullable=False),
            sa.Column("remove_at", sa.BigInteger, nullable=False),
            mysql_charset="utf8mb4",
            mysql_engine="InnoDB",
        )
    present = {index["name"] for index in sa.inspect(op.get_bind()).get_indexes("restorable")}
    if "restorable_queue" not in present:
        columns = ["queue", "sequence_number", "settled_at"]
        op.create_index("restorable_queue", "restorable", columns, postgresql_where=sa.text("settled_at > 0"))
    if "restorable_remove_at" not in present:
        op.create_index("restorable_remove_at", "restorable", ["remove_at"])


def downgrade() -> None:
    op.drop_table("restorable")
