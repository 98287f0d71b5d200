"""API keys, and the sessions that were opened with them, in named statements, the same for every engine."""

from collections.abc import Sequence
from dataclasses import asdict

from app.domain.access import ApiKey, ReadKey
from app.domain.session import Session
from app.store.shared import rows
from app.store.shared.database import Database, ReplicatedRecords, SqlSession
from app.store.shared.json_columns import write_rights


class KeyRecords(ReplicatedRecords):
    """`ApiKeyStore` over a database."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def add(self, key: ApiKey, max_live: int) -> bool:
        """See `ApiKeyStore`. Additions run one at a time, so two at once cannot exceed the limit."""

        async def work(session: SqlSession) -> bool:
            await session.fetch("serialize_key_creation")
            if await session.fetch("key_by_hash", secret_hash=key.secret_hash):
                return True
            ((live,),) = await session.fetch("live_keys", principal=key.principal)
            if live >= max_live:
                return False
            await session.change(
                "add_key",
                id=key.id,
                principal=key.principal,
                secret_hash=key.secret_hash,
                rights=write_rights(key.grant),
                created_at=key.created_at,
                expires_at=key.expires_at,
                last_used_at=key.last_used_at,
                revoked_at=key.revoked_at,
            )
            return True

        return await self._database.transaction(work)

    async def by_hash(self, secret_hash: bytes) -> ReadKey | None:
        """See `ApiKeyStore`."""
        found_rows = await self._database.fetch("key_by_hash", secret_hash=secret_hash)
        return rows.read_key(found_rows[0]) if found_rows else None

    async def by_id(self, key_id: str) -> ReadKey | None:
        """See `ApiKeyStore`."""
        found_rows = await self._database.fetch("key_by_id", id=key_id)
        return rows.read_key(found_rows[0]) if found_rows else None

    async def list_all(self) -> list[ApiKey]:
        """See `ApiKeyStore`."""
        return [rows.api_key(row) for row in await self._database.fetch("list_keys")]

    async def revoke(self, key_id: str) -> bool:
        """See `ApiKeyStore`."""
        if await self._database.change("revoke_key", id=key_id):
            return True
        await self.await_replication()
        return False

    async def record_use(self, key_ids: Sequence[str]) -> None:
        """See `ApiKeyStore`."""

        async def work(session: SqlSession) -> None:
            for key_id in sorted(key_ids):
                await session.change("record_key_use", id=key_id)

        await self._database.transaction(work)

    async def has_live(self) -> bool:
        """See `ApiKeyStore`."""
        return bool(await self._database.fetch("any_live_key"))


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
