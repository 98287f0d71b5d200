"""`peeklock restored`: makes a database that was restored from a backup safe to serve."""

import asyncio
from typing import Annotated

import typer

from app.broker.administration.restored import SKIPPED_NUMBERS, prepare_restored
from app.broker.ports.store import Store
from app.cli.output import say
from app.cli.serving import read_settings
from app.domain.refusals import BackendUnavailable
from app.server.preflight import RefusedToStart, open_database
from app.settings import Settings
from app.store.in_use import DatabaseInUse

MAX_SKIPPED = 1_000_000_000_000
"""A few million restores fit into the sequence numbers of a database."""


def restored(
    skip: Annotated[
        int, typer.Option(min=1, max=MAX_SKIPPED, help="How many sequence numbers to skip.")
    ] = SKIPPED_NUMBERS,
) -> None:
    """Prepare a database that was restored from a backup. Stop all servers first.

    Renewals of locks from the time after the backup are refused, and its sequence numbers are not given out again.
    """
    try:
        first = asyncio.run(_restored(read_settings(), skip))
    except (RefusedToStart, DatabaseInUse) as refusal:
        say(str(refusal))
        raise typer.Exit(1) from None
    except BackendUnavailable as error:
        say(f"{error.code}: {error}")
        raise typer.Exit(1) from None
    say(
        f"All earlier lock records are invalid. The next message gets sequence number {first} or higher. You can start the servers now."
    )


async def _restored(settings: Settings, skip: int) -> int:
    async with open_database(settings) as store:
        await _check_alone(store)
        return await prepare_restored(store, skip)


async def _check_alone(store: Store) -> None:
    """Refuse with `DatabaseInUse` while a server runs: it would go on with the lock versions and numbers that it has read."""
    await store.acquire_exclusive()
