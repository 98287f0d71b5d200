"""Makes, lists and revokes API keys directly in the database of the environment's settings.

A refusal is printed, and the command exits with status 1.
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
from app.domain.refusals import BackendUnavailable, Refusal
from app.server.preflight import RefusedToStart, open_database
from app.wire.keys import key_view

Result = TypeVar("Result")


def create_key_in_database(principal: str, grant: Grant, days: float | None) -> dict[str, Any]:
    """Make a key that expires after `days`, or never. Return its fields and its secret."""

    async def act(store: Store) -> dict[str, Any]:
        now = await store.now()
        expires_at = None if days is None else now + from_seconds(days * 86_400)
        new_key = await create_key(store.keys, principal, grant, now, expires_at)
        return {**_key_fields(new_key.key), "secret": new_key.secret}

    return _in_database(act)


def list_keys_in_database() -> list[dict[str, Any]]:
    """Return the fields of each key."""

    async def act(store: Store) -> list[dict[str, Any]]:
        return [_key_fields(key) for key in await store.keys.list_all()]

    return _in_database(act)


def revoke_key_in_database(key_id: str) -> None:
    """Revoke a key."""
    _in_database(lambda store: revoke_key(store.keys, key_id))


def _in_database(action: Callable[[Store], Awaitable[Result]]) -> Result:
    async def run() -> Result:
        async with open_database(read_settings()) as store:
            return await action(store)

    try:
        return asyncio.run(run())
    except RefusedToStart as error:
        err.print(f"{error} A running server makes keys too: give its URL with --url.", markup=False)
        raise typer.Exit(1) from None
    except (Refusal, BackendUnavailable) as error:
        err.print(f"{error.code}: {error}", markup=False)
        raise typer.Exit(1) from None


def _key_fields(key: ApiKey) -> dict[str, Any]:
    return msgspec.to_builtins(key_view(key))
