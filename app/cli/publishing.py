"""`peeklock publish`: a message to the subscriptions of a topic."""

from typing import Any

from app.cli.bodies import BodyFile, BodyText, PropertyTexts, body_field, message_fields, read_body
from app.cli.client import CONNECTION, ApiClient
from app.cli.field_options import FieldGroup
from app.cli.option_groups import with_options
from app.cli.request_options import PUBLISH_MESSAGE
from app.cli.topics import TopicName, topic_path

NOT_IN_OPTIONS = ("body", "body_base64", "delivery", "wait_seconds")


@with_options(fields=FieldGroup(PUBLISH_MESSAGE, without=NOT_IN_OPTIONS), client=CONNECTION)
def publish(
    topic: TopicName,
    client: ApiClient,
    fields: dict[str, Any],
    body: BodyText = None,
    file: BodyFile = None,
    texts: PropertyTexts = None,
) -> None:
    """Copy a message to the queues of all subscriptions of a topic that match it."""
    message = message_fields(fields, texts)
    message |= body_field(read_body(body, file), message["content_type"])
    answer = client.call("POST", topic_path(topic, "messages"), message)
    queues = "1 queue" if answer["matched"] == 1 else f"{answer['matched']} queues"
    client.printer.answer(answer, f"published {answer['message_id']} to {queues}")
