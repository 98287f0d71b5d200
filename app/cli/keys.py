"""`peeklock key ...`: API keys, in the database itself or, with a URL or a context, through a running server.

The first key must be created in the database: a server that is not on loopback does not start without a key.
"""

from collections.abc import Sequence
from inspect import Parameter
from typing import Annotated, Any, TypeAlias
from urllib.parse import quote

import typer

from app.cli.client import CONNECTION_OPTIONS, OUTPUT_OPTIONS, ApiClient, OutputGroup, connect, find_server
from app.cli.option_groups import with_options
from app.cli.output import Printer, say
from app.domain.access import ALL_RIGHTS, Right

LOCAL_ADMIN_HEADERS = {"Peeklock-Local-Admin": "true"}
"""A server without keys requires this header to make or revoke one; a server with keys ignores it."""

KeyId: TypeAlias = Annotated[str, typer.Argument(metavar="ID", help="Id of the key.")]

COLUMNS = ("id", "principal", "rights", "patterns", "created_at", "expires_at", "last_used_at", "revoked_at")


class OptionalConnection:
    """A client of a server, or the printer alone for the database."""

    parameters: Sequence[Parameter] = (*CONNECTION_OPTIONS, *OUTPUT_OPTIONS)

    def collect(self, values: dict[str, Any]) -> ApiClient | Printer:
        """See `OptionGroup`."""
        printer = OutputGroup().collect(values)
        url, api_key = find_server(values["server_url"], values["api_key"], values["context"])
        return printer if url is None else connect(url, api_key, printer)


OPTIONAL = OptionalConnection()


@with_options(target=OPTIONAL)
def create_key(
    target: ApiClient | Printer,
    principal: Annotated[str, typer.Option(help="The user or application of the key. It may have two live keys.")],
    right: Annotated[
        list[Right] | None, typer.Option(help="A right of the key; may be repeated. All rights by default.")
    ] = None,
    pattern: Annotated[
        list[str] | None,
        typer.Option(help="Queue names that the key covers, such as a*; may be repeated. All by default."),
    ] = None,
    days: Annotated[
        float | None, typer.Option(help="Days until the key expires. Without it the key never expires.")
    ] = None,
) -> None:
    """Create a key and print its secret, which is shown only once. Without a URL or a context, create it in the database."""
    body: dict[str, Any] = {
        "principal": principal,
        "rights": sorted(right or ALL_RIGHTS),
        "patterns": pattern or ["*"],
        "expires_in_seconds": None if days is None else days * 86_400,
    }
    if isinstance(target, ApiClient):
        created, place = target.call("POST", "/v1/keys", body, headers=LOCAL_ADMIN_HEADERS), ""
    else:
        from app.cli import database_keys

        created, place = database_keys.create_key_in_database(body)
    printer = _printer(target)
    printer.answer(created, created["secret"])
    if not printer.is_for_programs and created["sqs_secret_access_key"] is not None:
        _say_sqs_credentials(created["id"], created["sqs_secret_access_key"])
    if not printer.is_for_programs:
        say(f"Key {created['id']} of {principal}. The secret is shown only now. Send it as Authorization: Bearer.")
    if place:
        say(place)


@with_options(target=OPTIONAL)
def list_keys(target: ApiClient | Printer) -> None:
    """List all keys, without their secrets. Without a URL or a context, read them from the database."""
    if isinstance(target, ApiClient):
        keys = list(target.pages("/v1/keys", {}))
    else:
        from app.cli import database_keys

        keys = database_keys.list_keys_in_database()
    _printer(target).rows(keys, COLUMNS, "keys")


@with_options(target=OPTIONAL)
def show_key(key_id: KeyId, target: ApiClient | Printer) -> None:
    """Show one key, live or not, without its secret. Without a URL or a context, read it from the database."""
    if isinstance(target, ApiClient):
        key = target.call("GET", _path(key_id))
    else:
        from app.cli import database_keys

        key = database_keys.show_key_in_database(key_id)
    _printer(target).fields(key)


@with_options(target=OPTIONAL)
def show_sqs_credentials(key_id: KeyId, target: ApiClient | Printer) -> None:
    """Print the variables with which clients of Amazon SQS use a key. Without a URL or a context, read it from the database.

    They need PEEKLOCK_SQS_SECRET, at the server or, without a URL, in the environment of this command.
    """
    if isinstance(target, ApiClient):
        credentials = target.call("GET", _path(key_id) + "/sqs")
    else:
        from app.cli import database_keys

        credentials = database_keys.show_sqs_credentials_in_database(key_id)
    secret = credentials["secret_access_key"]
    if secret is None:
        say("PEEKLOCK_SQS_SECRET is not set, so keys have no SQS secret. Set it for all servers, and for this command.")
        raise typer.Exit(1)
    _printer(target).answer(credentials, "\n".join(_variables(credentials["access_key_id"], secret)))


@with_options(target=OPTIONAL)
def revoke_key(key_id: KeyId, target: ApiClient | Printer) -> None:
    """Revoke a key. Running servers stop accepting it within five seconds."""
    if isinstance(target, ApiClient):
        target.call("DELETE", _path(key_id), headers=LOCAL_ADMIN_HEADERS)
    else:
        from app.cli import database_keys

        database_keys.revoke_key_in_database(key_id)
    printer = _printer(target)
    if printer.is_for_programs:
        printer.document({"revoked": key_id})


def _variables(key_id: str, secret: str) -> tuple[str, str]:
    return f"AWS_ACCESS_KEY_ID={key_id}", f"AWS_SECRET_ACCESS_KEY={secret}"


def _say_sqs_credentials(key_id: str, secret: str) -> None:
    say("Clients of Amazon SQS use:")
    for line in _variables(key_id, secret):
        say(line)


def _path(key_id: str) -> str:
    return f"/v1/keys/{quote(key_id, safe='')}"


def _printer(target: ApiClient | Printer) -> Printer:
    return target.printer if isinstance(target, ApiClient) else target
