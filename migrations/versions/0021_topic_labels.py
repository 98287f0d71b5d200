"""Labels of topics and subscriptions. Servers from before them keep what the columns have, and add null, which is no label."""

from collections.abc import Sequence

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import mysql

revision = "0021"
down_revision: str | None = "0020"
branch_labels: Sequence[str] | None = None
depends_on: Sequence[str] | None = None

TABLES = ("topic", "subscription")
COLUMN = "labels"
LONG_TEXT = sa.Text().with_variant(mysql.MEDIUMTEXT(collation="utf8mb4_bin"), "mysql", "mariadb")


def upgrade() -> None:
    # MariaDB and MySQL commit each step by itself, so a run that was cut off there finds some of them done.
    for table in TABLES:
        if COLUMN not in {column["name"] for column in sa.inspect(op.get_bind()).get_columns(table)}:
            op.add_column(table, sa.Column(COLUMN, LONG_TEXT))


def downgrade() -> None:
    for table in TABLES:
        op.drop_column(table, COLUMN)
