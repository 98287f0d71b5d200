"""Runs the migrations on the connection that app/store/migrate.py has opened, inside its transaction."""

from alembic import context

from app.store import tables

connection = context.config.attributes["connection"]
context.configure(
    connection=connection,
    target_metadata=tables.SQLModel.metadata,
    # SQLite can undo tables as well, though Alembic does not count on it.
    transactional_ddl=connection.dialect.name in ("postgresql", "sqlite"),
)
with context.begin_transaction():
    context.run_migrations()
