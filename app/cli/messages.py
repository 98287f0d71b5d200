"""`peeklock send | receive | recover | browse`: messages in a terminal or a pipe."""

import sys
from base64 import b64decode, b64encode
from enum import StrEnum
from itertools import islice
from pathlib import Path
from typing import Annotated, Any, Literal, assert_never

import msgspec
import typer

from app.cli.client import (
    DEFAULT_URL,
    JSON_HEADERS,
    ApiClient,
    AsJson,
    Key,
    QueueName,
    Url,
    connect,
    err,
    progress,
    queue_path,
    read_json,
    show,
    show_table,
)
from app.wire.values import is_json_media_type

BATCH_SIZE = 500
"""Lines per request."""

SETTLEMENTS_PER_REQUEST = 100
"""A request for each message could take longer than the locks last; one for all would settle none after a failure."""

DEFAULT_CONTENT_TYPE = "text/plain"
"""The content type of a message without --content-type."""


class SettlementAction(StrEnum):
    """The settlement of each received message."""

    COMPLETE = "complete"
    ABANDON = "abandon"
    DEAD_LETTER = "dead-letter"
    DEFER = "defer"
    NONE = "none"


def send(
    name: QueueName,
    body: Annotated[
        str | None,
        typer.Argument(help="Body of the message as text. Without it the body is read from --file or standard input."),
    ] = None,
    file: Annotated[
        Path | None, typer.Option(exists=True, dir_okay=False, help="Read the body from this file.")
    ] = None,
    lines: Annotated[bool, typer.Option("--lines", help="Send every line as a message of its own.")] = False,
    content_type: Annotated[str | None, typer.Option(help="Content type of the body. text/plain by default.")] = None,
    priority: Annotated[
        int | None, typer.Option(min=0, max=9, help="A higher priority is received first. 4 by default.")
    ] = None,
    delay: Annotated[float | None, typer.Option(help="Seconds until the message can be received.")] = None,
    group: Annotated[str | None, typer.Option(help="Group of the message.")] = None,
    transaction: Annotated[str | None, typer.Option(help="Send with the commit of this transaction.")] = None,
    synchronous: Annotated[
        bool, typer.Option("--synchronous", help="Wait until a receiver has settled the message, and print its reply.")
    ] = False,
    wait: Annotated[float | None, typer.Option(help="Seconds to wait with --synchronous. 20 by default.")] = None,
    url: Url = DEFAULT_URL,
    key: Key = None,
    as_json: AsJson = False,
) -> None:
    """Send a message from the argument, a file or standard input."""
    if body is not None and file is not None:
        raise typer.BadParameter("The body is given twice: as an argument and with --file.")
    if synchronous and lines:
        raise typer.BadParameter("--synchronous sends one message; --lines sends several.")
    if wait is not None and not synchronous:
        raise typer.BadParameter("--wait can be used with --synchronous only.")
    client = connect(url, key, as_json)
    content = body.encode() if body is not None else file.read_bytes() if file else sys.stdin.buffer.read()
    fields = {
        "content_type": content_type or DEFAULT_CONTENT_TYPE,
        "priority": priority,
        "delay_seconds": delay,
        "group_id": group,
    }
    given_fields = {field: value for field, value in fields.items() if value is not None}
    if lines:
        numbered_lines = enumerate(content.splitlines(), start=1)
        messages = [{**_body(number, line, content_type), **given_fields} for number, line in numbered_lines]
        _send_lines(client, name, messages, transaction)
        return
    if synchronous:
        waiting = {"delivery": "synchronous", "wait_seconds": wait, "transaction_id": transaction}
        _send_and_wait(client, name, {**_body(1, content, content_type), **given_fields, **waiting})
        return
    headers = {
        "content-type": content_type or DEFAULT_CONTENT_TYPE,
        "peeklock-priority": priority,
        "peeklock-delay-seconds": delay,
        "peeklock-group-id": group,
        "peeklock-transaction-id": transaction,
    }
    given_headers = {header: str(value) for header, value in headers.items() if value is not None}
    answer = client.send("POST", queue_path(name, "messages", "raw"), content=content, headers=given_headers).json()
    number = answer["sequence_number"]
    text = f"uncommitted ({answer['message_id']})" if number is None else f"sent {number} ({answer['message_id']})"
    show(answer) if as_json else typer.echo(text)


def receive(
    name: QueueName,
    max_messages: Annotated[
        int | None, typer.Option("--max", min=1, max=1000, help="Maximum number of messages. 1 by default.")
    ] = None,
    wait: Annotated[
        float | None, typer.Option(min=0, help="Seconds to wait for the first message. 0 by default.")
    ] = None,
    action: Annotated[
        SettlementAction, typer.Option("--then", help="What to do with each message after it is printed.")
    ] = SettlementAction.COMPLETE,
    reason: Annotated[str | None, typer.Option(help="Reason of an abandon or dead-letter.")] = None,
    dead_letter: Annotated[bool, typer.Option("--dead-letter", help="Receive from the dead-letter queue.")] = False,
    group: Annotated[str | None, typer.Option(help="Only messages of this group, in a queue with groups.")] = None,
    number: Annotated[
        list[int] | None,
        typer.Option(help="Sequence number of a message to receive, for example a deferred one; may be repeated."),
    ] = None,
    receiver: Annotated[str | None, typer.Option(help="Name of this receiver, stored with each lock.")] = None,
    transaction: Annotated[str | None, typer.Option(help="Settle with the commit of this transaction.")] = None,
    url: Url = DEFAULT_URL,
    key: Key = None,
    as_json: AsJson = False,
) -> None:
    """Receive messages, print them and settle them. `--then none` leaves them locked."""
    client = connect(url, key, as_json)
    source = "dead_letter" if dead_letter else "queue"
    request_body: dict[str, Any] = {"max_messages": max_messages or 1, "wait_seconds": wait or 0, "source": source}
    if group is not None:
        request_body["group_id"] = group
    if number:
        if max_messages is not None or wait is not None or dead_letter or group is not None:
            raise typer.BadParameter("--number cannot be used with --max, --wait, --dead-letter or --group.")
        request_body = {"sequence_numbers": number}
    if receiver is not None:
        request_body["receiver_id"] = receiver
    messages = client.call("POST", queue_path(name, "messages", "receive"), request_body)["messages"]
    for start in range(0, len(messages), SETTLEMENTS_PER_REQUEST):
        batch = messages[start : start + SETTLEMENTS_PER_REQUEST]
        for message in batch:
            _print(message, as_json)
        if action is not SettlementAction.NONE:
            tokens = [message["lock_token"] for message in batch]
            _settle(client, name, [_settlement(action, token, reason) for token in tokens], transaction)


def recover(
    name: QueueName,
    receiver: Annotated[str, typer.Option(help="Name of the receiver, as it was given to receive.")],
    max_messages: Annotated[
        int | None, typer.Option("--max", min=1, max=1000, help="Maximum number of messages. 1000 by default.")
    ] = None,
    url: Url = DEFAULT_URL,
    key: Key = None,
    as_json: AsJson = False,
) -> None:
    """Get the messages again that a receiver has locked, under new lock tokens, and print them. They stay locked."""
    request_body = {"receiver_id": receiver, "max_messages": max_messages or 1000}
    for message in connect(url, key, as_json).call("POST", queue_path(name, "recover"), request_body)["messages"]:
        _print(message, as_json)


def browse(
    name: QueueName,
    state: Annotated[str | None, typer.Option(help="Only messages in this state.")] = None,
    filter_: Annotated[
        str | None, typer.Option("--filter", help="Filter in CEL over `message`: only messages that match.")
    ] = None,
    limit: Annotated[int, typer.Option(min=1, help="Maximum number of messages.")] = 50,
    url: Url = DEFAULT_URL,
    key: Key = None,
    as_json: AsJson = False,
) -> None:
    """Show messages without locking or changing them."""
    query = {"state": state, "filter": filter_, "limit": min(limit, 1000)}
    parameters = {field: value for field, value in query.items() if value is not None}
    messages = list(islice(connect(url, key, as_json).pages(queue_path(name, "messages"), parameters), limit))
    if as_json:
        for message in messages:
            show(message)
        return
    columns = ("sequence_number", "state", "priority", "message_id", "enqueued_at", "failure_count")
    show_table(columns, [[message.get(column) for column in columns] for message in messages])


def _body(line_number: int, line: bytes, content_type: str | None) -> dict[str, Any]:
    """Return the body of one line: JSON if the content type says so, else its bytes, as in a single send."""
    if not is_json_media_type(content_type):
        return {"body_base64": b64encode(line).decode()}
    try:
        msgspec.json.decode(line, type=msgspec.Raw)
    except msgspec.DecodeError as error:
        raise typer.BadParameter(f"Line {line_number} is not JSON: {error}") from None
    return {"body": msgspec.Raw(line)}


def _send_lines(client: ApiClient, name: str, lines: list[dict[str, Any]], transaction: str | None) -> None:
    with progress() as bar:
        task = bar.add_task("sent", total=len(lines))
        for start in range(0, len(lines), BATCH_SIZE):
            batch = lines[start : start + BATCH_SIZE]
            content = msgspec.json.encode({"messages": batch, "transaction_id": transaction})
            client.send("POST", queue_path(name, "messages", "batch"), content=content, headers=JSON_HEADERS)
            bar.update(task, advance=len(batch))
    show({"sent": len(lines)}) if client.as_json else typer.echo(f"sent {len(lines)}")


def _send_and_wait(client: ApiClient, name: str, message: dict[str, Any]) -> None:
    content = msgspec.json.encode(message)
    response = client.send("POST", queue_path(name, "messages"), content=content, headers=JSON_HEADERS)
    answer = read_json(response.content)
    if client.as_json:
        show(answer)
    elif "reply" in answer:
        _print_value(answer["reply"])
    else:
        typer.echo(f"{answer['outcome']} {answer['sequence_number']} ({answer['message_id']})")


def _settlement(
    action: Literal[
        SettlementAction.COMPLETE, SettlementAction.ABANDON, SettlementAction.DEAD_LETTER, SettlementAction.DEFER
    ],
    lock_token: str,
    reason: str | None,
) -> dict[str, str]:
    """Return the settlement of a message, as the operation `settle_messages` takes it."""
    settlement = {"action": action.value.replace("-", "_"), "lock_token": lock_token}
    match action:
        case SettlementAction.ABANDON | SettlementAction.DEAD_LETTER:
            return {**settlement, "reason": reason} if reason else settlement
        case SettlementAction.COMPLETE | SettlementAction.DEFER:
            return settlement
        case _:
            assert_never(action)


def _settle(client: ApiClient, name: str, settlements: list[dict[str, str]], transaction: str | None) -> None:
    """Settle messages together. Exits with status 1 after it has printed every settlement that is refused."""
    results = client.call(
        "POST", queue_path(name, "settle"), {"settlements": settlements, "transaction_id": transaction}
    )["results"]
    for result in results:
        if result["result"] == "refused":
            client.print_problem(result["problem"])
        elif result["outcome"] == "deferred":
            err.print(f"deferred: receive it with --number {result['sequence_number']}")
    if any(result["result"] == "refused" for result in results):
        raise typer.Exit(1)


def _print(message: dict[str, Any], as_json: bool) -> None:
    """Print the whole message as JSON, or only its body: text and bytes unchanged, an empty line without a body."""
    if as_json:
        show(message)
    elif "body_base64" in message:
        typer.echo(b64decode(message["body_base64"]))
    else:
        _print_value(message.get("body", ""))


def _print_value(value: Any) -> None:
    """Print a JSON value, a string as text."""
    typer.echo(value) if isinstance(value, str) else show(value)
