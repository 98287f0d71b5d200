"""Answers from what is stored already, in a database with synchronous standbys."""

from typing import Protocol


class ReplicatedStore(Protocol):
    """A store whose database may have synchronous standbys."""

    async def await_replication(self) -> None:
        """Return once the standbys have all that was read before, at once if there are none.

        An answer that a change is already made needs this: its first try may have ended before the standbys had it.
        """
        ...
