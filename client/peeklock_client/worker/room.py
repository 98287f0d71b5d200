"""How many messages a worker may receive next, by the number that waits and by the bytes of those in hand (S2.15)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any
from weakref import WeakKeyDictionary

from peeklock_client.encoding import encoded
from peeklock_client.receive_context import ReceiveContext
from peeklock_client.worker.options import SubscriberOptions


class Room:
    """The room of one queue's worker for more messages.

    A receive asks for as many messages as fit, if they are as large as the largest of the last answer, and for one at
    least while there is any room. So one answer may exceed the bytes that are allowed, and a message that is larger than all
    of them is received when nothing else is in hand or with what is left of the room.
    """

    def __init__(self, options: SubscriberOptions) -> None:
        self._options = options
        self._sizes = WeakKeyDictionary[ReceiveContext[Any], int]()
        self._largest = 0

    def note_received(self, contexts: Sequence[ReceiveContext[Any]]) -> None:
        """Record the sizes of received messages."""
        sizes = {context: size_of(context.message.body) for context in contexts}
        self._sizes.update(sizes)
        self._largest = max(sizes.values(), default=self._largest)

    def limit(self, waiting: int, held: Iterable[ReceiveContext[Any]]) -> int:
        """Return how many messages to receive, while this number waits and these are in hand. 0 if there is too little room.

        A receive needs room for half a batch of messages, and for one byte.
        """
        batch = self._options.fetch_batch_size
        limit = min(batch, self._options.capacity - waiting)
        if 2 * limit < batch:
            return 0
        free = self._options.max_bytes - sum(self._sizes.get(context, 0) for context in held)
        if free <= 0:
            return 0
        return min(limit, max(1, free // self._largest)) if self._largest else limit


def size_of(body: Any) -> int:
    """Return about how many bytes a body has."""
    return len(body) if isinstance(body, str | bytes) else len(encoded(body))
