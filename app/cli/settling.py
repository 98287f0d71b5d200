"""`complete`, `abandon`, `defer`, `release`, `dead-letter add`, `renew`: act on a message that `receive --then none` has locked."""

from typing import Annotated, Any, TypeAlias
from urllib.parse import quote

import typer

from app.cli.client import CONNECTION, ApiClient, QueueName, queue_path
from app.cli.field_options import FieldGroup
from app.cli.option_groups import with_options
from app.cli.request_options import ABANDON_LOCK, COMPLETE_LOCK, DEAD_LETTER_LOCK, DEFER_LOCK, RELEASE_LOCK, RENEW_LOCK

LockToken: TypeAlias = Annotated[
    str, typer.Argument(metavar="TOKEN", help="Lock token, as `receive --then none` prints it.")
]


@with_options(fields=FieldGroup(COMPLETE_LOCK), client=CONNECTION)
def complete(name: QueueName, lock_token: LockToken, client: ApiClient, fields: dict[str, Any]) -> None:
    """Complete a message. It leaves its queue, and no receiver gets it again."""
    _settle(client, name, lock_token, "complete", fields)


@with_options(fields=FieldGroup(ABANDON_LOCK), client=CONNECTION)
def abandon(name: QueueName, lock_token: LockToken, client: ApiClient, fields: dict[str, Any]) -> None:
    """Return a message to its queue as failed. It may be delayed."""
    _settle(client, name, lock_token, "abandon", fields)


@with_options(fields=FieldGroup(DEFER_LOCK), client=CONNECTION)
def defer(name: QueueName, lock_token: LockToken, client: ApiClient, fields: dict[str, Any]) -> None:
    """Set a message aside. `receive --number` receives it later."""
    _settle(client, name, lock_token, "defer", fields)


@with_options(fields=FieldGroup(RELEASE_LOCK), client=CONNECTION)
def release(name: QueueName, lock_token: LockToken, client: ApiClient, fields: dict[str, Any]) -> None:
    """Return a message that was not processed. Nothing is counted."""
    _settle(client, name, lock_token, "release", fields)


@with_options(fields=FieldGroup(DEAD_LETTER_LOCK), client=CONNECTION)
def dead_letter(name: QueueName, lock_token: LockToken, client: ApiClient, fields: dict[str, Any]) -> None:
    """Dead-letter a locked message that cannot be processed."""
    _settle(client, name, lock_token, "dead-letter", fields)


@with_options(fields=FieldGroup(RENEW_LOCK), client=CONNECTION)
def renew(name: QueueName, lock_token: LockToken, client: ApiClient, fields: dict[str, Any]) -> None:
    """Extend the lock of a message."""
    answer = client.call("POST", _lock_path(name, lock_token, "renew"), fields)
    client.printer.answer(answer, f"locked until {answer['locked_until']}")


def _settle(client: ApiClient, name: str, lock_token: str, action: str, fields: dict[str, Any]) -> None:
    """Settle a message, and print what became of it."""
    answer = client.call("POST", _lock_path(name, lock_token, action), fields)
    client.printer.answer(answer, f"{answer['outcome']} {answer['sequence_number']}")


def _lock_path(name: str, lock_token: str, action: str) -> str:
    return queue_path(name, "locks", quote(lock_token, safe=""), action)
