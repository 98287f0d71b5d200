"""Workers of both protocols share a queue: each message, sent by either, is handled once."""

from __future__ import annotations

import sys
from pathlib import Path

from peeklock_client import BlockingClient

from tests.bounds import bounded
from tests.peeklock_process import environment
from tests.sqs_clients.signed_server import BOOTSTRAP_KEY, PROGRAMS, PYTHON, SignedServer, run, running

QUEUE, EACH = "shared", 10
SEND = f"""
import boto3
sqs = boto3.client("sqs")
url = sqs.get_queue_url(QueueName="{QUEUE}")["QueueUrl"]
entries = [{{"Id": str(order), "MessageBody": str(order)}} for order in range({EACH}, {2 * EACH})]
print(len(sqs.send_message_batch(QueueUrl=url, Entries=entries)["Successful"]))
"""


def test_each_message_is_handled_once_by_one_of_the_two_workers(server: SignedServer, tmp_path: Path) -> None:
    native = (environment(url=server.url, api_key=BOOTSTRAP_KEY), sys.executable, PROGRAMS / "native_worker.py")
    of_aws = (server.variables(), PYTHON, PROGRAMS / "boto3_worker.py")
    with BlockingClient(server.url, BOOTSTRAP_KEY) as client:
        queue = client.queue(QUEUE)
        queue.create()
        queue.send_batch(list(range(EACH)))
        assert run(server.variables(), PYTHON, "-c", SEND) == EACH
        with (
            running(*native, QUEUE, tmp_path, directory=tmp_path) as native_lines,
            running(*of_aws, QUEUE, tmp_path, directory=tmp_path) as aws_lines,
        ):
            held = int(native_lines.readline()), int(aws_lines.readline())
            (tmp_path / "may-go-on").touch()
            for _ in bounded(f"the workers do not empty the queue after {held}"):
                if queue.status().counts.available + queue.status().counts.locked == 0:
                    break
    handled = (tmp_path / "handled").read_text().split()
    assert sorted(map(int, handled)) == list(range(2 * EACH))
