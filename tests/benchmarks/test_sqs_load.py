"""The load of the SQS interface sends what boto3 sends, and does the whole work of a lifecycle."""

from calendar import timegm
from collections.abc import Iterator
from pathlib import Path
from time import strptime
from typing import Any

import pytest

from benchmarks.load import WorkUnit, drive
from benchmarks.sqs_access import SQS_SETTINGS, through_sqs
from benchmarks.sqs_load import EXAMPLES, SignedForm, SigningKey, recorded, sqs_batch_lifecycle, sqs_lifecycle
from benchmarks.systems import System, call, peeklock

KEY = SigningKey("0123456789abcdef", "the secret of the key")


@pytest.mark.parametrize("action", EXAMPLES)
def test_a_request_of_the_load_has_the_bytes_of_botocore(action: str) -> None:
    headers, body = recorded(action, EXAMPLES[action], KEY)
    given = dict(headers)
    form = SignedForm(headers, given["Host"], KEY.secret)
    seconds = timegm(strptime(given["X-Amz-Date"], "%Y%m%dT%H%M%SZ"))
    lines = "".join(f"{name}: {value}\r\n" for name, value in headers)
    assert form.request(body, seconds) == f"POST / HTTP/1.1\r\n{lines}\r\n".encode() + body


@pytest.fixture
def server(tmp_path: Path) -> Iterator[System]:
    """A server on SQLite that verifies signatures, loaded through SQS."""
    with peeklock(tmp_path, None, None, more=SQS_SETTINGS) as ours:
        call(ours, "PUT", "/v1/queues/sqs", {})
        yield through_sqs(ours.with_queue("sqs"))


@pytest.mark.parametrize(("work_unit", "sent"), [(sqs_lifecycle, 12), (sqs_batch_lifecycle, 120)])
async def test_each_message_is_sent_and_deleted(server: System, work_unit: WorkUnit, sent: int) -> None:
    deleted = await drive(server.target, work_unit, callers=3, units=12)
    counts: Any = call(server, "GET", "/v1/queues/sqs")["counts"]
    assert deleted > sent / 2
    assert deleted + sum(counts.values()) == sent
