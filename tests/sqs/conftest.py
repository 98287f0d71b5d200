"""Fixtures of the tests of the SQS interface."""

from collections.abc import AsyncIterator

import pytest

from tests.sqs.sqs_server import SqsServer, open_sqs_server


@pytest.fixture
async def sqs() -> AsyncIterator[SqsServer]:
    """A server that needs no key."""
    async with open_sqs_server() as server:
        yield server
