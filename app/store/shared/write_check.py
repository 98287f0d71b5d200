"""Checks whether a database accepts writes, and logs once that it does not."""

import os

import structlog

from app.store.shared.database import NotWritable, SqlSession

KEY_BYTES = 32
"""A key of the table of attempts has the length of a digest."""

TRIAL_BYTES = 64 << 10
"""More than the free space in pages that are already allocated, so that a full disk is noticed."""

log = structlog.get_logger("peeklock.store")


class WriteCheck:
    """Checks whether a database accepts writes.

    The first check, and the first one after each refused write, must write `TRIAL_BYTES`, because a full disk refuses only
    what needs more space. The others run a statement that changes nothing, which a read-only database refuses.
    """

    def __init__(self, database: SqlSession) -> None:
        self._database = database
        self._is_verified = False
        self._was_refused = False
        self._refusals = 0

    def on_refused(self, error: NotWritable) -> None:
        """Require a trial write from now on. Only the first of several failures is logged."""
        if not self._was_refused:
            log.error("the database accepts no writes", reason=str(error), cause=str(error.__cause__ or ""))
        self._is_verified, self._was_refused = False, True
        self._refusals += 1

    async def run(self) -> None:
        """Raise `StoreUnavailable` if the database accepts no writes.

        If another write was refused during the check, the next check makes a trial write again.
        """
        key, refusals = os.urandom(KEY_BYTES), self._refusals
        if not self._is_verified:
            await self._database.change("add_trial", key=key, content=os.urandom(TRIAL_BYTES // 2).hex())
        await self._database.change("delete_trial", key=key)
        if refusals != self._refusals:
            return
        self._is_verified = True
        if self._was_refused:
            log.info("the database accepts writes again")
            self._was_refused = False
