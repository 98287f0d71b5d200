"""Changes the settings of a queue without ending the locks of its receivers."""

from typing import Any

from app.broker.administration import queues as verbs
from app.domain.queue import HeldLocks
from app.sqs.call import Call


async def change_settings(call: Call[Any], change: verbs.SettingsChange) -> None:
    """Change settings of the queue of a call. Receivers keep their locks. Refuses as `change_queue` does."""
    ports = call.broker.administration
    queue = await verbs.reload_queue(ports, call.queue_name)
    await verbs.change_queue(ports, queue, change, locks=HeldLocks.KEEP)
