"""The fields that calls take by name are those of the classes they make."""

from peeklock_client import NewMessage, SubscriberOptions
from peeklock_client.messages import MessageFields
from peeklock_client.worker.options import SubscriberFields


def test_a_send_takes_each_field_of_a_message_but_its_body_and_its_target() -> None:
    fields = {name: kind for name, kind in NewMessage.__annotations__.items() if name not in ("body", "queue", "topic")}
    assert MessageFields.__annotations__.keys() == fields.keys()


def test_a_decorator_takes_each_option_of_a_subscriber() -> None:
    assert SubscriberFields.__annotations__.keys() == SubscriberOptions.__annotations__.keys()
