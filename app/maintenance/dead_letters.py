"""Moves dead letters to the queues that the settings of their queues name. It runs in every replica, without a leader."""

from app.broker.administration.forward_dead_letters import forward_dead_letters
from app.broker.administration.ports import AdministrationPorts


class DeadLetterForwarder:
    """Moves one page of each queue in a pass.

    The next pass goes on after it, so messages that the target does not accept hold up no others. After the last page
    it starts over.
    """

    def __init__(self, ports: AdministrationPorts) -> None:
        self._ports = ports
        self._pages_after: dict[int, int] = {}

    async def step(self) -> float | None:
        """Move a page of each queue; return 0 if a queue has a further one."""
        pages_after: dict[int, int] = {}
        for queue in await self._ports.store.queues.that_forward_dead_letters():
            after = await forward_dead_letters(self._ports, queue, self._pages_after.get(queue.id, 0))
            if after is not None:
                pages_after[queue.id] = after
        self._pages_after = pages_after
        return 0.0 if pages_after else None
