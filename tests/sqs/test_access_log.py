"""The access log of requests through SQS."""

import logging

import pytest
from structlog.testing import capture_logs

from tests.sqs.sqs_server import open_sqs_server


async def test_the_access_log_names_the_action_and_the_queue(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, "peeklock.access")
    async with open_sqs_server() as sqs:
        with capture_logs() as lines:
            url = await sqs.create()
            await sqs.send(url, "a private body")
            await sqs.request("SendMessage", QueueUrl="/0/not a name", MessageBody="a")
    assert [(line["operation"], line["queue"]) for line in lines] == [
        ("sqs_create_queue", "orders"),
        ("sqs_send_message", "orders"),
        ("sqs_send_message", None),
    ]
    assert "private" not in str(lines)
