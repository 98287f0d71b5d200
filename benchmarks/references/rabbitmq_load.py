"""The load of the row `prefetch` on RabbitMQ: publishers that wait for each confirm, and one consumer with a prefetch.

    rabbitmq_load.py PORT QUEUE PUBLISHERS MESSAGES PREFETCH

Ends once the consumer has acknowledged all messages of a quorum queue. It runs in an environment that has pika.
"""

import json
import sys
from itertools import count
from threading import Thread
from typing import Any

import pika

BODY = json.dumps({"text": "x" * 1000}).encode()


def main() -> None:
    """Publish and consume at the same time."""
    port, queue, publishers, messages, prefetch = (*map(str, sys.argv[1:3]), *map(int, sys.argv[3:]))
    with connect(port) as connection:
        connection.channel().queue_declare(queue, durable=True, arguments={"x-queue-type": "quorum"})
    left = iter(range(messages))
    threads = [Thread(target=publish, args=(port, queue, left)) for _ in range(publishers)]
    consumer = Thread(target=consume, args=(port, queue, messages, prefetch))
    for thread in (consumer, *threads):
        thread.start()
    for thread in (consumer, *threads):
        thread.join()


def connect(port: str) -> Any:
    """Open a connection."""
    return pika.BlockingConnection(pika.ConnectionParameters("127.0.0.1", int(port)))


def publish(port: str, queue: str, left: Any) -> None:
    """Publish one message after the other, each once the previous one is confirmed."""
    with connect(port) as connection:
        channel = connection.channel()
        channel.confirm_delivery()
        for _ in left:
            channel.basic_publish("", queue, BODY, pika.BasicProperties(delivery_mode=2))


def consume(port: str, queue: str, messages: int, prefetch: int) -> None:
    """Acknowledge each message."""
    acknowledged = count(1)
    with connect(port) as connection:
        channel = connection.channel()
        channel.basic_qos(prefetch_count=prefetch)
        for delivery, _, _ in channel.consume(queue):
            channel.basic_ack(delivery.delivery_tag)
            if next(acknowledged) == messages:
                return


if __name__ == "__main__":
    main()
