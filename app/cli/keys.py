"""`peeklock key ...`: API keys, directly in the server's database or, with --url, at a running server.

The first key must be made in the database: a server beyond loopback does not start without one.
"""

from typing import Annotated, Any
from urllib.parse import quote

import typer

from app.cli.client import AsJson, Key, connect, err, show, show_table
from app.domain.access import ALL_RIGHTS, Right

key = typer.Typer(no_args_is_help=True, help="Make, list and revoke API keys.")

OptionalUrl = Annotated[
    str | None,
    typer.Option(
        "--url", envvar="PEEKLOCK_URL", help="URL of a running server. Without it the command uses the database."
    ),
]
LOCAL_ADMIN_HEADERS = {"Peeklock-Local-Admin": "true"}
"""A server without keys requires this header to make or revoke one; a server with keys ignores it."""

COLUMNS = ("id", "principal", "rights", "patterns", "created_at", "expires_at", "last_used_at", "revoked_at")


@key.command("create")
def create_key(
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
    url: OptionalUrl = None,
    api_key: Key = None,
    as_json: AsJson = False,
) -> None:
    """Make a key and print its secret, which is shown only once."""
    body: dict[str, Any] = {
        "principal": principal,
        "rights": sorted(right or ALL_RIGHTS),
        "patterns": pattern or ["*"],
        "expires_in_seconds": None if days is None else days * 86_400,
    }
    if url is not None:
        created = connect(url, api_key, as_json).call("POST", "/v1/keys", body, headers=LOCAL_ADMIN_HEADERS)
    else:
        from app.cli import database_keys

        created = database_keys.create_key_in_database(body)
    if as_json:
        show(created)
        return
    typer.echo(created["secret"])
    err.print(f"Key {created['id']} of {principal}. The secret is shown only now. Send it as Authorization: Bearer.")


@key.command("list")
def list_keys(url: OptionalUrl = None, api_key: Key = None, as_json: AsJson = False) -> None:
    """List every key, without its secret."""
    if url is not None:
        keys = list(connect(url, api_key).pages("/v1/keys", {}))
    else:
        from app.cli import database_keys

        keys = database_keys.list_keys_in_database()
    if as_json:
        for fields in keys:
            show(fields)
        return
    show_table(COLUMNS, [[fields.get(column) for column in COLUMNS] for fields in keys])


@key.command("revoke")
def revoke_key(
    key_id: Annotated[str, typer.Argument(metavar="ID", help="Id of the key.")],
    url: OptionalUrl = None,
    api_key: Key = None,
    as_json: AsJson = False,
) -> None:
    """Revoke a key. Running servers stop accepting it within five seconds."""
    if url is not None:
        connect(url, api_key, as_json).call("DELETE", f"/v1/keys/{quote(key_id, safe='')}", headers=LOCAL_ADMIN_HEADERS)
    else:
        from app.cli import database_keys

        database_keys.revoke_key_in_database(key_id)
    if as_json:
        show({"revoked": key_id})
