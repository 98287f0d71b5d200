"""`peeklock receive | recover`: messages in a terminal or a pipe."""

from base64 import b64decode
from enum import StrEnum
from typing import Annotated, Any, Literal, assert_never

import msgspec
import typer

from app.cli.client import CONNECTION, ApiClient, QueueName, encode, queue_path, without_none
from app.cli.option_groups import with_options
from app.cli.output import Output, print_value, read_json, say

SETTLEMENTS_PER_REQUEST = 100
"""A request for each message could take longer than the locks last; one for all would settle none after a failure."""

COLUMNS = ("sequence_number", "message_id", "lock_token", "locked_until", "delivery_count")

Raw = Annotated[
    bool, typer.Option("--raw", help="Print no line break after a body, so that its bytes stay as they are.")
]


class SettlementAction(StrEnum):
    """The settlement of each received message."""

    COMPLETE = "complete"
    ABANDON = "abandon"
    DEAD_LETTER = "dead-letter"
    DEFER = "defer"
    RELEASE = "release"
    NONE = "none"


@with_options(client=CONNECTION)
def receive(
    name: QueueName,
    client: ApiClient,
    max_messages: Annotated[
        int | None,
        typer.Option("--max-messages", "--max", min=1, max=1000, help="Maximum number of messages. 1 by default."),
    ] = None,
    wait: Annotated[
        float | None,
        typer.Option(
            "--wait-seconds",
            "--wait",
            min=0,
            help="Seconds to wait for the first message. The setting of the queue by default.",
        ),
    ] = None,
    lock_seconds: Annotated[
        float | None, typer.Option(help="Seconds until the locks end. The setting of the queue by default.")
    ] = None,
    action: Annotated[
        SettlementAction, typer.Option("--then", help="What to do with each message after it is printed.")
    ] = SettlementAction.COMPLETE,
    reason: Annotated[str | None, typer.Option(help="Reason for --then abandon or dead-letter.")] = None,
    dead_letter: Annotated[bool, typer.Option("--dead-letter", help="Receive from the dead-letter queue.")] = False,
    filter_: Annotated[
        str | None, typer.Option("--filter", help="CEL expression over `message`: receive only messages that match.")
    ] = None,
    group: Annotated[
        str | None, typer.Option("--group-id", "--group", help="Receive only messages of this group.")
    ] = None,
    number: Annotated[
        list[int] | None,
        typer.Option(help="Sequence number of a message to receive, for example a deferred one; may be repeated."),
    ] = None,
    receiver: Annotated[
        str | None, typer.Option("--receiver-id", "--receiver", help="Name of this receiver, stored with each lock.")
    ] = None,
    transaction: Annotated[
        str | None,
        typer.Option("--transaction-id", "--transaction", help="Settle with the commit of this transaction."),
    ] = None,
    raw: Raw = False,
) -> None:
    """Receive messages, print their bodies and settle them. `--then none` keeps them locked and prints their tokens."""
    if number and (max_messages or wait is not None or dead_letter or group is not None or filter_):
        raise typer.BadParameter("--number cannot be used with --max, --wait, --dead-letter, --group or --filter.")
    source = "dead_letter" if dead_letter else "queue"
    chosen = {"max_messages": max_messages or 1, "source": source} | without_none(
        wait_seconds=wait, group_id=group, filter=filter_
    )
    request_body = {"sequence_numbers": number} if number else chosen
    request_body |= without_none(receiver_id=receiver, lock_seconds=lock_seconds)
    messages = _messages(client, queue_path(name, "messages", "receive"), request_body)
    if client.printer.output is Output.TABLE or not messages:
        client.printer.rows(messages, COLUMNS, f"message in queue {name}")
    for start in range(0, len(messages), SETTLEMENTS_PER_REQUEST):
        batch = messages[start : start + SETTLEMENTS_PER_REQUEST]
        _print_messages(client, batch, line_break=not raw, is_kept=action is SettlementAction.NONE)
        if action is not SettlementAction.NONE:
            tokens = [message["lock_token"] for message in batch]
            _settle(client, name, [_settlement(action, token, reason) for token in tokens], transaction)
    _refuse_missing(number or [], messages)


@with_options(client=CONNECTION)
def recover(
    name: QueueName,
    client: ApiClient,
    receiver: Annotated[
        str, typer.Option("--receiver-id", "--receiver", help="Name of the receiver, as it was given to receive.")
    ],
    max_messages: Annotated[
        int | None,
        typer.Option("--max-messages", "--max", min=1, max=1000, help="Maximum number of messages. 1000 by default."),
    ] = None,
    count: Annotated[
        bool, typer.Option(help="Whether this counts as another delivery. No if the messages never arrived.")
    ] = True,
    raw: Raw = False,
) -> None:
    """Receive again what a receiver has locked, and print it. The messages stay locked, under new lock tokens."""
    request_body = {"receiver_id": receiver, "max_messages": max_messages or 1000, "count": count}
    messages = _messages(client, queue_path(name, "recover"), request_body)
    if client.printer.output is Output.TABLE or not messages:
        client.printer.rows(messages, COLUMNS, f"message of receiver {receiver}")
    _print_messages(client, messages, line_break=not raw, is_kept=True)


class _WrittenMessage(msgspec.Struct):
    """The body of a message, with the blanks, the numbers and the order in which its sender wrote it."""

    body: msgspec.Raw = msgspec.Raw()


class _WrittenMessages(msgspec.Struct):
    messages: list[_WrittenMessage]


def _messages(client: ApiClient, path: str, request_body: Any) -> list[dict[str, Any]]:
    """Receive messages. Where only bodies are printed, a JSON body that is no string is the JSON that was sent."""
    headers = {"content-type": "application/json"}
    answer = client.send("POST", path, content=encode(request_body), headers=headers).content
    messages: list[dict[str, Any]] = read_json(answer)["messages"]
    if client.printer.output is None:
        for message, written in zip(messages, msgspec.json.decode(answer, type=_WrittenMessages).messages, strict=True):
            if not isinstance(message.get("body", ""), str):
                message["body"] = written.body
    return messages


def _print_messages(client: ApiClient, messages: list[dict[str, Any]], *, line_break: bool, is_kept: bool) -> None:
    """Print whole messages, or only their bodies, and the token of each that stays locked on standard error."""
    if client.printer.output is Output.TABLE:
        return
    for message in messages:
        if client.printer.is_for_programs:
            client.printer.document(message)
            continue
        _print_body(message, line_break=line_break)
        if is_kept:
            say(f"locked: {message['lock_token']}")


def _print_body(message: dict[str, Any], *, line_break: bool) -> None:
    """Print the body of a message: text in UTF-8 and bytes unchanged, an empty line without a body."""
    body = message.get("body", "")
    if "body_base64" in message:
        typer.echo(b64decode(message["body_base64"]), nl=line_break)
    elif isinstance(body, str):
        typer.echo(body.encode(errors="surrogatepass"), nl=line_break)
    else:
        print_value(body, line_break=line_break)


def _refuse_missing(numbers: list[int], messages: list[dict[str, Any]]) -> None:
    """Exit with status 1 if a message is missing that was asked for by its number."""
    missing = sorted(set(numbers) - {message["sequence_number"] for message in messages})
    for number in missing:
        say(f"Message {number} cannot be received. `peeklock explain` says why.")
    if missing:
        raise typer.Exit(1)


def _settlement(
    action: Literal[
        SettlementAction.COMPLETE,
        SettlementAction.ABANDON,
        SettlementAction.DEAD_LETTER,
        SettlementAction.DEFER,
        SettlementAction.RELEASE,
    ],
    lock_token: str,
    reason: str | None,
) -> dict[str, str]:
    """Return the settlement of a message, as the operation `settle_messages` takes it."""
    settlement = {"action": action.value.replace("-", "_"), "lock_token": lock_token}
    match action:
        case SettlementAction.ABANDON | SettlementAction.DEAD_LETTER:
            return {**settlement, "reason": reason} if reason else settlement
        case SettlementAction.COMPLETE | SettlementAction.DEFER | SettlementAction.RELEASE:
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
            client.printer.problem(result["problem"])
        elif result["outcome"] == "deferred":
            say(f"deferred: receive it with --number {result['sequence_number']}")
    if any(result["result"] == "refused" for result in results):
        raise typer.Exit(1)
