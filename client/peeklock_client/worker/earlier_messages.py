"""Receives again what a worker with a `receiver_id` of its own held when it ended (S1.66)."""

from __future__ import annotations

from peeklock_client.connection import Connection
from peeklock_client.generated import answers, requests


class EarlierMessages:
    """Gives the messages of an earlier run, in answers of at most `limit` messages.

    Each recovery takes all that the id has locked, also messages that an answer before it had. So no recovery may begin while
    the worker has messages in hand. Messages that no handler settles are recovered once more, and not for ever.
    """

    def __init__(self, api: Connection, queue: str, receiver_id: str | None, limit: int) -> None:
        self._api = api
        self._queue = queue
        self._receiver_id = receiver_id
        self._limit = limit
        self._seen = set[int]()
        self.may_be_left = receiver_id is not None

    async def next(self) -> list[answers.MessageView]:
        """Return the next messages, none if no earlier run holds any."""
        if self._receiver_id is None:
            return []
        recovery = requests.RecoverMessages(self._receiver_id, self._limit)
        messages = (await self._api.recover_messages(self._queue, recovery)).messages
        numbers = {view.sequence_number for view in messages}
        self.may_be_left = not numbers <= self._seen
        self._seen |= numbers
        return messages
