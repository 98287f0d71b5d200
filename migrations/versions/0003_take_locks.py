"""What a change of a queue has still to do: until when locks were given that it takes.

A column that may be null is added without touching the rows, of which there are as many as queues.
"""

from collections.abc import Sequence

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision: str | None = "0002"
branch_labels: Sequence[str] | None = None
depends_on: Sequence[str] | None = None


def upgrade() -> None:
    # MariaDB and MySQL commit each step by itself, so a run that was cut off there finds some of them done.
    inspector = sa.inspect(op.get_bind())
    if "take_locks_until" not in {column["name"] for column in inspector.get_columns("queue")}:
        op.add_column("queue", sa.Column("take_locks_until", sa.BigInteger))
    if "queue_take_locks" not in {index["name"] for index in inspector.get_indexes("queue")}:
        pending = sa.text("take_locks_until IS NOT NULL")
        op.create_index(
            "queue_take_locks", "queue", ["take_locks_until"], postgresql_where=pending, sqlite_where=pending
        )


def downgrade() -> None:
    op.drop_index("queue_take_locks", "queue")
    op.drop_column("queue", "take_locks_until")
