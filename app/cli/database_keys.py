"""Makes, lists, shows and revokes API keys directly in the database of the environment's settings.

A refusal is printed, and the command exits with status 1.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, TypeVar

import msgspec
import typer

from app.broker.access.keys import create_key, get_key, revoke_key
from app.broker.access.signing_secret import maybe_signing_secret
from app.broker.ports.store import Store
from app.cli.output import say
from app.cli.serving import read_settings
from app.domain.access import ApiKey
from app.domain.refusals import BackendUnavailable, Refusal
from app.server.preflight import RefusedToStart, open_database
from app.settings import Settings
from app.wire.decode_errors import invalid_request
from app.wire.keys import CreateKey, SqsCredentials, created_key, key_view

Result = TypeVar("Result")


def create_key_in_database(body: Mapping[str, Any]) -> tuple[dict[str, Any], str]:
    """Make a key as the operation `create_key` does for this body. Return its fields with its secret, and where it is stored."""

    async def act(store: Store) -> dict[str, Any]:
        request = _read(body)
        now, lifetime = await store.now(), request.lifetime()
        expires_at = None if lifetime is None else now + lifetime
        new_key = await create_key(store.keys, request.principal, request.grant(), now, expires_at)
        sqs_secret = maybe_signing_secret(_sqs_secret(settings), new_key.key)
        return _fields(created_key(new_key.key, new_key.secret, sqs_secret))

    settings = read_settings()
    if not settings.is_embedded:
        return _in_database(act), "Stored in the database of PEEKLOCK_DATABASE_URL."
    file = settings.data_dir.absolute() / "peeklock.db"
    is_new = not file.exists()
    created = _in_database(act)
    if is_new:
        return created, f"Stored in {file}, which is new. For a server that runs with another database, use --url."
    return created, f"Stored in {file}."


def list_keys_in_database() -> list[dict[str, Any]]:
    """Return the fields of each key."""

    async def act(store: Store) -> list[dict[str, Any]]:
        return [_key_fields(key) for key in await store.keys.list_all()]

    return _in_database(act)


def show_key_in_database(key_id: str) -> dict[str, Any]:
    """Return the fields of one key."""

    async def act(store: Store) -> dict[str, Any]:
        return _key_fields(await get_key(store.keys, key_id))

    return _in_database(act)


def show_sqs_credentials_in_database(key_id: str) -> dict[str, Any]:
    """Return the credentials of one key for clients of Amazon SQS."""

    async def act(store: Store) -> dict[str, Any]:
        key = await get_key(store.keys, key_id)
        return _fields(SqsCredentials(key.id, maybe_signing_secret(_sqs_secret(read_settings()), key)))

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
        say(f"{error} To create the key on a running server, give its URL with --url.")
        raise typer.Exit(1) from None
    except (Refusal, BackendUnavailable) as error:
        say(f"{error.code}: {error}")
        raise typer.Exit(1) from None


def _read(body: Mapping[str, Any]) -> CreateKey:
    """Check a body against the limits of the operation. Refuses with `InvalidRequest`."""
    try:
        return msgspec.convert(body, CreateKey)
    except msgspec.ValidationError as error:
        raise invalid_request(error, CreateKey) from None


def _key_fields(key: ApiKey) -> dict[str, Any]:
    return _fields(key_view(key))


def _fields(answer: msgspec.Struct) -> dict[str, Any]:
    return msgspec.to_builtins(answer)


def _sqs_secret(settings: Settings) -> str | None:
    return None if settings.sqs_secret is None else settings.sqs_secret.get_secret_value()
