"""Receives again the messages that an earlier run of a worker held under the same `receiver_id` (S1.66)."""

from __future__ import annotations

from peeklock_client.connection import Connection
from peeklock_client.generated import answers, requests


class EarlierMessages:
    """Recovers the messages of an earlier run, at most `limit` in each answer.

    Each recovery takes all messages that the id has locked, also those of an earlier answer. So no recovery may begin while the
    worker holds messages. Messages that no handler settles are recovered once more, but not for ever.
    """

    def __init__(self, api: Connection, queue: str, receiver_id: str | None, limit: int) -> None:
        self._api = api
        self._queue = queue
        self._receiver_id = receiver_id
        self._limit = limit
        self._seen = set[int]()
        self.may_be_left = receiver_id is not None

    async def next(self) -> list[answers.ReceivedMessage]:
        """Return the next messages, or an empty list if no earlier run holds any."""
        if self._receiver_id is None:
            return []
        recovery = requests.RecoverMessages(self._receiver_id, self._limit)
        messages = (await self._api.recover_messages(self._queue, recovery)).messages
        numbers = {view.sequence_number for view in messages}
        self.may_be_left = not numbers <= self._seen
        self._seen |= numbers
        return messages
