"""Versioned states. Work units change them."""

from typing import Protocol

from app.domain.instant import Duration
from app.domain.state import LoadedState, StateSummary, StateVersion, VersionSummary


class StateStore(Protocol):
    """The states and their versions. Version 0 is a state without versions, which is None here."""

    async def newest(self, key: str) -> StateVersion | None:
        """Return the newest version of the state."""
        ...

    async def version(self, key: str, number: int) -> StateVersion | None:
        """Return one version of the state, or None if it is not kept."""
        ...

    async def before_message(self, key: str, message_id: str) -> LoadedState:
        """Return the version on which the message was first processed, and what that processing captured.

        Return the newest version if no version names the message.
        """
        ...

    async def history(self, key: str, after: int, limit: int) -> list[VersionSummary]:
        """Return versions with numbers above `after`, ascending."""
        ...

    async def page(self, after: str, limit: int) -> list[StateSummary]:
        """Return states with keys above `after`, ascending by code point."""
        ...

    async def delete(self, key: str) -> bool:
        """Delete a state; return whether there was one. The next change of the key begins with version 1 again."""
        ...

    async def delete_old_versions(self, retention: Duration, limit: int) -> int:
        """Remove versions that were replaced at least `retention` ago, and those of deleted states. Return how many.

        At most `limit` of each kind, and never the newest version of a state. The message of the version after a removed
        one counts as new from then on.
        """
        ...
