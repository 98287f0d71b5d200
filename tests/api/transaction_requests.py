"""Requests about open transactions, for tests."""

from typing import Any

import httpx

from tests.api.api_server import ApiServer


async def open_transaction(api: ApiServer, **fields: Any) -> Any:
    """Open a transaction and return its id."""
    return (await api.request_json("POST", "/transactions", fields))["id"]


async def commit(api: ApiServer, transaction_id: str, **request: Any) -> httpx.Response:
    """Commit a transaction."""
    return await api.request("POST", f"/transactions/{transaction_id}/commit", {}, **request)


async def roll_back(api: ApiServer, transaction_id: str) -> httpx.Response:
    """Roll back a transaction."""
    return await api.request("POST", f"/transactions/{transaction_id}/rollback", {})


async def shown(api: ApiServer, transaction_id: str, **query: Any) -> Any:
    """Return a transaction as its owner sees it."""
    return await api.request_json("GET", f"/transactions/{transaction_id}", params=query)


async def locked(api: ApiServer, queue: str = "orders") -> Any:
    """Send a message and receive it."""
    await api.send(queue)
    (message,) = await api.receive(queue)
    return message
