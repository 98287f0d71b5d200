"""Requests about topics, for tests."""

from typing import Any

from tests.api.api_server import ApiServer


async def subscribe(api: ApiServer, name: str, topic: str = "orders", **settings: Any) -> Any:
    """Add or replace a subscription."""
    return await api.request_json("PUT", f"/topics/{topic}/subscriptions/{name}", settings)


async def publish(api: ApiServer, topic: str = "orders", **message: Any) -> Any:
    """Publish a message."""
    return await api.request_json("POST", f"/topics/{topic}/messages", message)


async def received(api: ApiServer, queue: str) -> list[Any]:
    """Return the bodies in a queue, in order."""
    return [message["body"] for message in await api.receive(queue, max_messages=1000)]
