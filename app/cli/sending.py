"""`peeklock send`: a message to a queue, or one for each line; `peeklock publish`: a message to the subscriptions of a topic."""

from typing import Annotated, Any

import typer

from app.cli.bodies import BodyFile, BodyText, PropertyTexts, body_field, message_fields, read_body
from app.cli.client import CONNECTION, ApiClient, QueueName, encode, queue_path
from app.cli.field_options import FieldGroup
from app.cli.option_groups import with_options
from app.cli.output import print_value
from app.cli.progress import progress
from app.cli.request_options import PUBLISH_MESSAGE, SEND_MESSAGE
from app.cli.topics import TopicName, topic_path

BATCH_SIZE = 500
"""Lines per request."""

NO_OPTIONS = ("body", "body_base64", "delivery")
"""Fields of a message without an option of their own."""


@with_options(fields=FieldGroup(SEND_MESSAGE, without=NO_OPTIONS), client=CONNECTION)
def send(
    name: QueueName,
    client: ApiClient,
    fields: dict[str, Any],
    body: BodyText = None,
    file: BodyFile = None,
    lines: Annotated[bool, typer.Option("--lines", help="Send every line as a message of its own.")] = False,
    texts: PropertyTexts = None,
    synchronous: Annotated[
        bool, typer.Option("--synchronous", help="Wait until a receiver has settled the message, and print its reply.")
    ] = False,
) -> None:
    """Send a message from the argument, a file or standard input. Without --content-type it is text/plain."""
    if synchronous and lines:
        raise typer.BadParameter("--synchronous sends one message; --lines sends several.")
    if "wait_seconds" in fields and not synchronous:
        raise typer.BadParameter("--wait-seconds can be used with --synchronous only.")
    if lines and "message_id" in fields:
        raise typer.BadParameter("--message-id names one message; --lines sends several.")
    message = message_fields(fields, texts)
    content = read_body(body, file)
    if lines:
        _send_lines(client, name, content.splitlines(), message)
        return
    message |= body_field(content, message["content_type"])
    if synchronous:
        message["delivery"] = "synchronous"
    answer = client.call("POST", queue_path(name, "messages"), message)
    _print_answer(client, answer)


@with_options(fields=FieldGroup(PUBLISH_MESSAGE, without=(*NO_OPTIONS, "wait_seconds")), client=CONNECTION)
def publish(
    topic: TopicName,
    client: ApiClient,
    fields: dict[str, Any],
    body: BodyText = None,
    file: BodyFile = None,
    texts: PropertyTexts = None,
) -> None:
    """Send a message to a topic. It is copied to the queue of each subscription that matches."""
    message = message_fields(fields, texts)
    message |= body_field(read_body(body, file), message["content_type"])
    answer = client.call("POST", topic_path(topic, "messages"), message)
    queues = "1 queue" if answer["matched"] == 1 else f"{answer['matched']} queues"
    client.printer.answer(answer, f"published {answer['message_id']} to {queues}")


def _print_answer(client: ApiClient, answer: dict[str, Any]) -> None:
    """Print the reply to a synchronous send, or what became of the message."""
    if "reply" in answer and not client.printer.is_for_programs:
        print_value(answer["reply"])
        return
    number, word = answer.get("sequence_number"), answer.get("outcome", "sent")
    if answer.get("durability") == "volatile":
        word = "accepted"
    elif number is None:
        word = "uncommitted"
    elif answer.get("duplicate"):
        word = "duplicate of"
    numbered = word if number is None else f"{word} {number}"
    client.printer.answer(answer, f"{numbered} ({answer['message_id']})")


def _send_lines(client: ApiClient, name: str, lines: list[bytes], fields: dict[str, Any]) -> None:
    """Send each line as a message with these fields."""
    transaction, shared = fields.get("transaction_id"), {**fields}
    shared.pop("transaction_id", None)
    numbered = enumerate(lines, start=1)
    messages = [{**body_field(line, fields["content_type"], f"Line {number}"), **shared} for number, line in numbered]
    with progress("sent", len(messages)) as report:
        for start in range(0, len(messages), BATCH_SIZE):
            batch = messages[start : start + BATCH_SIZE]
            content = encode({"messages": batch, "transaction_id": transaction})
            client.call_raw(queue_path(name, "messages", "batch"), content)
            report(start + len(batch))
    client.printer.answer({"sent": len(messages)}, f"sent {len(messages)}")
