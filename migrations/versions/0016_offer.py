"""What became of messages whose senders wait for the settlement, in a narrow table of their own.

Only a synchronous send writes it. The messages themselves are rows of `message` with another `home_state`.
"""

from collections.abc import Sequence

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import mysql

revision = "0016"
down_revision: str | None = "0015"
branch_labels: Sequence[str] | None = None
depends_on: Sequence[str] | None = None

NUMBER = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
NAME = (
    sa.String(128)
    .with_variant(mysql.VARCHAR(128, collation="utf8mb4_bin"), "mysql", "mariadb")
    .with_variant(sa.String(128, collation="C"), "postgresql")
)
REPLY = sa.LargeBinary().with_variant(mysql.LONGBLOB(), "mysql", "mariadb")


def upgrade() -> None:
    # MariaDB and MySQL commit each step by itself, so a run that was cut off there finds some of them done.
    if not sa.inspect(op.get_bind()).has_table("offer"):
        op.create_table(
            "offer",
            sa.Column("sequence_number", NUMBER, primary_key=True, autoincrement=False),
            sa.Column("queue", NAME, nullable=False),
            sa.Column("outcome", sa.String(64)),
            sa.Column("delivery_count", sa.Integer, nullable=False, server_default=sa.text("0")),
            sa.Column("reply", REPLY),
            sa.Column("remove_at", sa.BigInteger, nullable=False),
            mysql_charset="utf8mb4",
            mysql_engine="InnoDB",
        )
    present = {index["name"] for index in sa.inspect(op.get_bind()).get_indexes("offer")}
    if "offer_remove_at" not in present:
        op.create_index("offer_remove_at", "offer", ["remove_at"])


def downgrade() -> None:
    op.drop_table("offer")
