"""Sessions in named statements, the same for every engine."""

from dataclasses import asdict

from app.domain.access import ReadKey
from app.domain.session import Session
from app.store.shared import rows
from app.store.shared.database import Database, SqlSession


class SessionRecords:
    """`SessionStore` over a database."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def add(self, session: Session) -> None:
        """See `SessionStore`."""

        async def work(statements: SqlSession) -> None:
            await statements.change("delete_expired_sessions")
            await statements.change("add_session", **asdict(session))

        await self._database.transaction(work)

    async def key_of(self, secret_hash: bytes) -> ReadKey | None:
        """See `SessionStore`."""
        found_rows = await self._database.fetch("session_key", secret_hash=secret_hash)
        return rows.read_key(found_rows[0]) if found_rows else None

    async def delete(self, secret_hash: bytes) -> None:
        """See `SessionStore`."""
        await self._database.change("delete_session", secret_hash=secret_hash)
