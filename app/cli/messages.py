"""`peeklock send | receive | browse`: messages from a terminal or a pipe."""

import sys
from base64 import b64decode, b64encode
from collections.abc import Iterator
from enum import StrEnum
from itertools import islice
from pathlib import Path
from typing import Annotated, Any

import msgspec
import typer

from app.cli.client import (
    DEFAULT_URL,
    AsJson,
    Key,
    QueueName,
    Server,
    Url,
    connect,
    err,
    progress,
    queue_path,
    show,
    show_table,
)
from app.wire.values import says_json

AS_JSON = {"content-type": "application/json"}
BATCH = 500
"""Lines sent per request."""


TEXT = "text/plain"
"""What a message says of itself where nothing else is said of it."""


class Ending(StrEnum):
    """What is done with each message that was received."""

    COMPLETE = "complete"
    ABANDON = "abandon"
    DEAD_LETTER = "dead-letter"
    DEFER = "defer"
    NONE = "none"


def send(
    name: QueueName,
    body: Annotated[
        str | None, typer.Argument(help="The body, as text; without one it is read from --file or standard input.")
    ] = None,
    file: Annotated[Path | None, typer.Option(exists=True, dir_okay=False, help="Read the body from a file.")] = None,
    lines: Annotated[bool, typer.Option("--lines", help="Every line read is a message of its own.")] = False,
    content_type: Annotated[str | None, typer.Option(help="Content type of the body; text/plain by default.")] = None,
    priority: Annotated[int | None, typer.Option(min=0, max=9, help="Higher goes first; 4 by default.")] = None,
    delay: Annotated[float | None, typer.Option(help="Seconds until it can be received.")] = None,
    url: Url = DEFAULT_URL,
    key: Key = None,
    as_json: AsJson = False,
) -> None:
    """Send a message: from the argument, a file, or standard input."""
    if body is not None and file is not None:
        raise typer.BadParameter("The body is given twice: as an argument, and by --file.")
    server = connect(url, key, as_json)
    content = body.encode() if body is not None else file.read_bytes() if file else sys.stdin.buffer.read()
    if lines:
        said = {"content_type": content_type or TEXT, "priority": priority, "delay_seconds": delay}
        given = {field: value for field, value in said.items() if value is not None}
        _send_lines(server, name, [{**_body(place, line, content_type), **given} for place, line in _numbered(content)])
        return
    headers = {
        "content-type": content_type or TEXT,
        "peeklock-priority": priority,
        "peeklock-delay-seconds": delay,
    }
    given = {header: str(value) for header, value in headers.items() if value is not None}
    answer = server.send("POST", queue_path(name, "messages", "raw"), content=content, headers=given).json()
    show(answer) if as_json else typer.echo(f"sent {answer['sequence_number']} ({answer['message_id']})")


def receive(
    name: QueueName,
    most: Annotated[
        int | None, typer.Option("--max", min=1, max=1000, help="At most so many messages; 1 by default.")
    ] = None,
    wait: Annotated[float | None, typer.Option(min=0, help="Seconds to wait for the first; 0 by default.")] = None,
    ending: Annotated[
        Ending, typer.Option("--then", help="What is done with each after it is printed.")
    ] = Ending.COMPLETE,
    reason: Annotated[str | None, typer.Option(help="Noted with an abandon or dead-letter.")] = None,
    dead_letter: Annotated[bool, typer.Option("--dead-letter", help="From the dead-letter queue.")] = False,
    number: Annotated[
        list[int] | None, typer.Option(help="This one, by sequence number, as deferred ones are; may be repeated.")
    ] = None,
    url: Url = DEFAULT_URL,
    key: Key = None,
    as_json: AsJson = False,
) -> None:
    """Receive messages, print them, and settle them as asked; `--then none` leaves them locked."""
    server = connect(url, key, as_json)
    source = "dead_letter" if dead_letter else "queue"
    wanted: dict[str, Any] = {"max_messages": most or 1, "wait_seconds": wait or 0, "source": source}
    if number:
        if most is not None or wait is not None or dead_letter:
            raise typer.BadParameter("--number names its messages: --max, --wait and --dead-letter do not go with it.")
        wanted = {"sequence_numbers": number}
    for message in server.call("POST", queue_path(name, "messages", "receive"), wanted)["messages"]:
        _print(message, as_json)
        if ending is not Ending.NONE:
            said = {"reason": reason} if reason and ending in (Ending.ABANDON, Ending.DEAD_LETTER) else {}
            server.call("POST", queue_path(name, "locks", message["lock_token"], ending.value), said)
        if ending is Ending.DEFER:
            err.print(f"deferred: receive it with --number {message['sequence_number']}")


def browse(
    name: QueueName,
    state: Annotated[str | None, typer.Option(help="Only messages in this state.")] = None,
    filter_: Annotated[str | None, typer.Option("--filter", help="CEL over `message`.")] = None,
    limit: Annotated[int, typer.Option(min=1, help="At most so many.")] = 50,
    url: Url = DEFAULT_URL,
    key: Key = None,
    as_json: AsJson = False,
) -> None:
    """Look at messages without locking or changing them."""
    query = {"state": state, "filter": filter_, "limit": min(limit, 1000)}
    given = {field: value for field, value in query.items() if value is not None}
    found = list(islice(connect(url, key, as_json).pages(queue_path(name, "messages"), given), limit))
    if as_json:
        for message in found:
            show(message)
        return
    columns = ("sequence_number", "state", "priority", "message_id", "enqueued_at", "failure_count")
    show_table(columns, [[message.get(column) for column in columns] for message in found])


def _numbered(content: bytes) -> Iterator[tuple[int, bytes]]:
    return enumerate(content.splitlines(), start=1)


def _body(place: int, line: bytes, content_type: str | None) -> dict[str, Any]:
    """The body of one line, as the same text sent alone would have it: JSON where that is said, else its bytes."""
    if not says_json(content_type):
        return {"body_base64": b64encode(line).decode()}
    try:
        msgspec.json.decode(line, type=msgspec.Raw)
    except msgspec.DecodeError as error:
        raise typer.BadParameter(f"Line {place} is not JSON: {error}") from None
    return {"body": msgspec.Raw(line)}


def _send_lines(server: Server, name: str, lines: list[dict[str, Any]]) -> None:
    with progress() as bar:
        task = bar.add_task("sent", total=len(lines))
        for start in range(0, len(lines), BATCH):
            batch = lines[start : start + BATCH]
            content = msgspec.json.encode({"messages": batch})
            server.send("POST", queue_path(name, "messages", "batch"), content=content, headers=AS_JSON)
            bar.update(task, advance=len(batch))
    show({"sent": len(lines)}) if server.as_json else typer.echo(f"sent {len(lines)}")


def _print(message: dict[str, Any], as_json: bool) -> None:
    """Print the whole message as JSON, or its body alone: text and bytes as they are, an empty line for none."""
    if as_json:
        show(message)
    elif "body_base64" in message:
        typer.echo(b64decode(message["body_base64"]))
    elif isinstance(message.get("body", ""), str):
        typer.echo(message.get("body", ""))
    else:
        show(message["body"])
