"""Sends and settles messages with kombu, and prints what is received."""

import json
import os

from kombu import Connection, Consumer, Exchange, Queue

VISIBILITY_SECONDS = 600
OPTIONS = {
    "is_secure": False,
    "region": os.environ["AWS_REGION"],
    "visibility_timeout": VISIBILITY_SECONDS,
    "wait_time_seconds": 1,
    "queue_name_prefix": "kombu-",
    "queue_tags": {"team": "shop"},
}


def simple(connection):
    """Put, count, get and acknowledge with a simple queue, and clear it."""
    with connection.SimpleQueue("simple.orders") as queue:
        for order in (1, 2, 3):
            queue.put({"order": order})
        size = queue.qsize()
        message = queue.get(timeout=20)
        message.ack()
        queue.clear()
        return [size, message.payload, queue.qsize()]


def consumed(connection):
    """Settle each message in another way: acknowledge it, return it once, and discard it."""
    queue = Queue("consumed", Exchange("consumed", type="direct"), routing_key="consumed")
    producer = connection.Producer()
    for body in ("ack", "requeue", "reject"):
        producer.publish(body, routing_key="consumed", exchange=queue.exchange, declare=[queue])
    seen = []

    def settle(body, message):
        seen.append(body)
        if body == "requeue" and seen.count(body) == 1:
            message.requeue()
        elif body == "reject":
            message.reject()
        else:
            message.ack()

    with Consumer(connection, [queue], callbacks=[settle]):
        while seen.count("requeue") < 2 or len(seen) < 4:
            try:
                connection.drain_events(timeout=20)
            except TimeoutError:
                continue
    return [sorted(seen), queue(connection.channel()).queue_declare(passive=True).message_count]


with Connection(os.environ["BROKER"], transport_options=OPTIONS) as connection:
    print(json.dumps({"simple": simple(connection), "consumed": consumed(connection)}))
