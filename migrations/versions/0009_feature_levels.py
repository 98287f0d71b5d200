"""Which servers may serve a queue: those that know the feature level that its settings need.

The new column has a default, so it is added without touching the rows. A server that does not know it goes on, and
serves every queue.
"""

from collections.abc import Sequence

import sqlalchemy as sa
from alembic import op

revision = "0009"
down_revision: str | None = "0008"
branch_labels: Sequence[str] | None = None
depends_on: Sequence[str] | None = None

USES_LATER_SETTINGS = sa.text("feature_level > 0")


def upgrade() -> None:
    # MariaDB and MySQL commit each step by itself, so a run that was cut off there finds some of them done.
    inspector = sa.inspect(op.get_bind())
    if "feature_level" not in {column["name"] for column in inspector.get_columns("queue")}:
        op.add_column("queue", sa.Column("feature_level", sa.SmallInteger, nullable=False, server_default=sa.text("0")))
    if "queue_feature_level" not in {index["name"] for index in inspector.get_indexes("queue")}:
        op.create_index(
            "queue_feature_level",
            "queue",
            ["feature_level"],
            postgresql_where=USES_LATER_SETTINGS,
            sqlite_where=USES_LATER_SETTINGS,
        )


def downgrade() -> None:
    op.drop_index("queue_feature_level", "queue")
    op.drop_column("queue", "feature_level")
