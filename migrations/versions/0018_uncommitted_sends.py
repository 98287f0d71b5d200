"""Uncommitted sends: those that wait for commits are counted by their queue.

Servers from before this migration write no `queue_id`, so the sends that they take are not counted.
"""

from collections.abc import Sequence

import sqlalchemy as sa
from alembic import op

revision = "0018"
down_revision: str | None = "0017"
branch_labels: Sequence[str] | None = None
depends_on: Sequence[str] | None = None

TABLE = "transaction_member"
INDEX = "transaction_member_queue"


def upgrade() -> None:
    # MariaDB and MySQL commit each step by itself, so a run that was cut off there finds some of them done.
    if "queue_id" not in {column["name"] for column in sa.inspect(op.get_bind()).get_columns(TABLE)}:
        op.add_column(TABLE, sa.Column("queue_id", sa.Integer))
    # Null for settlements, and for sends to queues that are gone.
    queue_id = f"SELECT queue.id FROM queue WHERE queue.name = {TABLE}.queue"
    op.execute(f"UPDATE {TABLE} SET queue_id = ({queue_id}) WHERE message_id IS NOT NULL")
    if INDEX not in {index["name"] for index in sa.inspect(op.get_bind()).get_indexes(TABLE)}:
        op.create_index(INDEX, TABLE, ["queue_id"])


def downgrade() -> None:
    op.drop_index(INDEX, TABLE)
    op.drop_column(TABLE, "queue_id")
