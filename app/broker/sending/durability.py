"""Whether durable messages are accepted: a server may refuse them while its store may lose acknowledged messages (S1.8)."""

from app.broker.ports.store import StoreDatabase
from app.domain.refusals import StoreNotDurable
from app.runtime.cache import Cache
from app.runtime.clock import Clock

CHECK_SECONDS = 5.0
"""How long what the store has said is used. Its settings change seldom, and a read of them costs as much as a send."""


class DurabilityCheck:
    """Refuses durable messages while the store is not durable, on a server that requires it. Others never ask the store."""

    def __init__(self, store: StoreDatabase, clock: Clock, *, is_required: bool) -> None:
        async def load(_: None) -> list[str]:
            return await store.durability_risks()

        self._is_required = is_required
        self._risks = Cache(load, clock, ttl_seconds=CHECK_SECONDS, max_size=1)

    async def check(self) -> None:
        """Refuse with `StoreNotDurable` if the store had risks at most `CHECK_SECONDS` ago."""
        if self._is_required and (risks := await self._risks.get(None)):
            raise StoreNotDurable(f"{StoreNotDurable.__doc__} {' '.join(risks)}")

    def accepts(self, risks: list[str]) -> bool:
        """Return whether durable messages are accepted while the store has these risks."""
        return not (self._is_required and risks)

    async def close(self) -> None:
        """End a read of the store that is under way."""
        await self._risks.close()
