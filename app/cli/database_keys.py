"""API keys made, listed and revoked straight in the database of the environment's settings.

A refusal is printed and ends the command with exit status 1.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import msgspec
import typer

from app.broker.keys import create_key, revoke_key
from app.broker.ports import Store
from app.cli.client import err
from app.cli.serving import read_settings
from app.domain.access import ApiKey, Grant
from app.domain.instant import from_seconds
from app.domain.refusals import Refusal, RoomUnavailable
from app.server.preflight import RefusedToStart, open_database
from app.wire.keys import key_view

Answer = TypeVar("Answer")


def create(principal: str, grant: Grant, days: float | None) -> dict[str, Any]:
    """Make a key that ends after `days`, or never; returns its fields and its secret."""

    async def act(store: Store) -> dict[str, Any]:
        now = await store.now()
        ends = None if days is None else now + from_seconds(days * 86_400)
        fresh = await create_key(store.keys, principal, grant, now, ends)
        return {**_plain(fresh.key), "secret": fresh.secret}

    return _in_database(act)


def every_key() -> list[dict[str, Any]]:
    """Return the fields of each key."""

    async def act(store: Store) -> list[dict[str, Any]]:
        return [_plain(one) for one in await store.keys.page()]

    return _in_database(act)


def revoke(key_id: str) -> None:
    """End a key."""
    _in_database(lambda store: revoke_key(store.keys, key_id))


def _in_database(act: Callable[[Store], Awaitable[Answer]]) -> Answer:
    async def run() -> Answer:
        async with open_database(read_settings()) as store:
            return await act(store)

    try:
        return asyncio.run(run())
    except RefusedToStart as error:
        err.print(f"{error} A server that runs makes keys too: name it with --url.", markup=False)
        raise typer.Exit(1) from None
    except (Refusal, RoomUnavailable) as error:
        err.print(f"{error.code}: {error}", markup=False)
        raise typer.Exit(1) from None


def _plain(one: ApiKey) -> dict[str, Any]:
    return msgspec.to_builtins(key_view(one))
