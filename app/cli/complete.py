"""`peeklock complete`: complete a message that `peeklock receive --then none` has locked."""

from typing import Annotated

import msgspec
import typer

from app.cli.client import DEFAULT_URL, JSON_HEADERS, AsJson, Key, QueueName, Url, connect, queue_path, read_json, show


def complete(
    name: QueueName,
    lock_token: Annotated[str, typer.Argument(metavar="TOKEN", help="Lock token of the message.")],
    reply: Annotated[str | None, typer.Option(help="Reply to a sender that waits for the settlement, as JSON.")] = None,
    url: Url = DEFAULT_URL,
    key: Key = None,
    as_json: AsJson = False,
) -> None:
    """Complete a message."""
    content = b"{}" if reply is None else msgspec.json.encode({"reply": _json(reply)})
    path = queue_path(name, "locks", lock_token, "complete")
    answer = read_json(connect(url, key, as_json).send("POST", path, content=content, headers=JSON_HEADERS).content)
    show(answer) if as_json else typer.echo(f"{answer['outcome']} {answer['sequence_number']}")


def _json(text: str) -> msgspec.Raw:
    try:
        return msgspec.json.decode(text, type=msgspec.Raw)
    except msgspec.DecodeError as error:
        raise typer.BadParameter(f"The reply is not JSON: {error}") from None
