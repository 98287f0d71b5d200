"""Makes the worker that pushes: an ordinary worker whose handler is the target."""

from __future__ import annotations

import asyncio

from peeklock_client.connection import Connection
from peeklock_client.push.batches import Batches, sender_of
from peeklock_client.push.circuit import Circuit
from peeklock_client.push.delivery import Delivery
from peeklock_client.push.handler import BatchHandler, PushHandler
from peeklock_client.push.options import PushOptions
from peeklock_client.push.rate import Rate
from peeklock_client.push.raw_messages import RawClient
from peeklock_client.push.target import open_target, target_url
from peeklock_client.worker.handlers import CallsHandler
from peeklock_client.worker.options import SubscriberOptions
from peeklock_client.worker.worker import Worker

MAX_FETCH = 1000
"""Messages of one receive."""


def delivery_of(options: PushOptions) -> Delivery:
    """Return the delivery to the target of these options. Raises `InvalidPush` for a URL that is not valid or not allowed."""
    url = target_url(options.url, allow_private=options.allow_private)
    target = open_target(url, options.limits, options.concurrency, allow_private=options.allow_private)
    return Delivery(target, options.secrets, Rate(options.rate), Circuit(url.name, options.open_after))


def push_worker(options: PushOptions, delivery: Delivery, client: RawClient) -> Worker:
    """Return a worker that sends the messages of its queues to a target. The caller closes the client and the target."""
    slots = asyncio.Semaphore(options.concurrency)

    def make(_api: Connection, queue: str) -> CallsHandler:
        if options.batch is None:
            return PushHandler(delivery, queue)
        return BatchHandler(delivery, queue, Batches(sender_of(delivery, queue), options.batch, slots))

    worker = Worker(client)
    worker.add_handler(options.queues, make, subscriber_options(options))
    return worker


def subscriber_options(options: PushOptions) -> SubscriberOptions:
    """Return the options of the worker: it receives few messages ahead, because an open circuit returns them."""
    return SubscriberOptions(
        max_workers=options.max_workers,
        fetch_batch_size=min(options.max_workers, MAX_FETCH),
        overfetch_factor=1.0,
        filter=options.filter,
        receiver_id=options.receiver_id,
    )
