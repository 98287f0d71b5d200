"""How often locked messages of a queue were purged: with the queue's version it says which lock records count.

The new column has a default, so it is added without touching the rows, and a server that does not know it goes on.
"""

from collections.abc import Sequence

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision: str | None = "0006"
branch_labels: Sequence[str] | None = None
depends_on: Sequence[str] | None = None


def upgrade() -> None:
    # MariaDB and MySQL commit each step by itself, so a run that was cut off there finds some of them done.
    if "lock_purges" not in {column["name"] for column in sa.inspect(op.get_bind()).get_columns("queue")}:
        op.add_column("queue", sa.Column("lock_purges", sa.Integer, nullable=False, server_default=sa.text("0")))


def downgrade() -> None:
    op.drop_column("queue", "lock_purges")
