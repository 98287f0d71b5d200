"""docs/guides: samples of other brokers do what the page shows for Peeklock. SQL for pgmq calls functions that exist."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import asyncpg
import pytest
import redis

from tests.databases import RunResources
from tests.docs.other_brokers import (
    HOST,
    Moto,
    PortMapper,
    Programs,
    RabbitServer,
    nightly_blocks,
    serving,
    shown_output,
)
from tests.docs.pages import PAGES, read
from tests.docs.test_push_receivers import RECEIVERS

SQS, CELERY, RABBITMQ = (f"guides/migrate-{name}.md" for name in ("sqs", "celery", "rabbitmq"))
PGMQ = "guides/migrate-pgmq.md"

CREATE_QUEUE = """
import boto3

boto3.client("sqs").create_queue(QueueName="sqs-orders")
"""
COUNT_MESSAGES = """
import boto3

sqs = boto3.client("sqs")
url = sqs.get_queue_url(QueueName="sqs-orders")["QueueUrl"]
counts = sqs.get_queue_attributes(QueueUrl=url, AttributeNames=["All"])["Attributes"]
print(counts["ApproximateNumberOfMessages"], counts["ApproximateNumberOfMessagesNotVisible"])
"""
PUBLISH_NEXT = """
import pika

with pika.BlockingConnection(pika.ConnectionParameters("localhost")) as connection:
    connection.channel().basic_publish("", "rabbit-orders", '{"order": 18}')
"""
GET_FIRST = """
import pika

with pika.BlockingConnection(pika.ConnectionParameters("localhost")) as connection:
    print(connection.channel().basic_get("rabbit-orders"))
"""
SIGNATURES = """
CREATE SCHEMA pgmq;
CREATE TYPE pgmq.message_record AS (
    msg_id BIGINT, read_ct INTEGER, enqueued_at TIMESTAMPTZ, vt TIMESTAMPTZ, message JSONB, headers JSONB
);
CREATE FUNCTION pgmq.create(queue_name TEXT) RETURNS void LANGUAGE sql AS '';
CREATE FUNCTION pgmq.send(queue_name TEXT, msg JSONB) RETURNS SETOF BIGINT LANGUAGE sql AS 'SELECT 1::BIGINT';
CREATE FUNCTION pgmq.read(queue_name TEXT, vt INTEGER, qty INTEGER, conditional JSONB DEFAULT '{}')
    RETURNS SETOF pgmq.message_record LANGUAGE sql AS 'SELECT NULL::pgmq.message_record';
CREATE FUNCTION pgmq.delete(queue_name TEXT, msg_id BIGINT) RETURNS BOOLEAN LANGUAGE sql AS 'SELECT true';
CREATE TABLE orders (id BIGINT);
"""
"""Of pgmq 1.5, with the table that the page writes to. The functions do nothing."""


def test_each_block_for_nightly_runs_is_executed_here() -> None:
    assert {page for page in PAGES if nightly_blocks(page)} == {SQS, CELERY, RABBITMQ, RECEIVERS, "sqs.md"}


@pytest.mark.nightly
def test_the_program_for_amazon_sqs_receives_and_deletes_what_it_sends(
    run_resources: RunResources, tmp_path: Path
) -> None:
    programs, moto = Programs(SQS, tmp_path), Moto(run_resources.new_directory())
    programs.save("create.py", CREATE_QUEUE)
    programs.save("count.py", COUNT_MESSAGES)
    with serving(moto):
        programs.run("create.py", moto.variables)
        assert programs.run("sample.py", moto.variables) == shown_output(SQS)
        assert programs.run("count.py", moto.variables) == "0 0\n"


@pytest.mark.nightly
def test_the_task_of_celery_waits_for_its_countdown_and_runs_in_a_worker(
    run_resources: RunResources, require_server: Callable[[str], str], tmp_path: Path
) -> None:
    with run_resources.empty_database(require_server("redis")) as url, redis.Redis.from_url(url) as broker:
        programs = Programs(CELERY, tmp_path, {"redis://localhost:6379/0": url})
        called = datetime.now(UTC)
        assert programs.run("call.py") == ""
        task = json.loads(broker.lpop("celery"))
        due = datetime.fromisoformat(task["headers"]["eta"])
        assert called < due - timedelta(seconds=60) < datetime.now(UTC)

        task["headers"]["eta"] = None  # now
        broker.lpush("celery", json.dumps(task))
        with programs.running("-m", "celery", "--app=shop", "worker", "--pool=solo") as lines:
            assert any(line.endswith(shown_output(CELERY)) for line in lines)
        assert broker.exists("celery", "unacked") == 0  # acknowledged after the task


@pytest.mark.nightly
def test_the_consumer_of_rabbitmq_prints_and_acknowledges(run_resources: RunResources, tmp_path: Path) -> None:
    mapper = PortMapper(run_resources.new_directory())
    rabbit = RabbitServer(run_resources.new_directory(), str(mapper.port))
    address = {'ConnectionParameters("localhost")': f'ConnectionParameters("{HOST}", {rabbit.port})'}
    programs = Programs(RABBITMQ, tmp_path, address)
    programs.save("publish.py", PUBLISH_NEXT)
    programs.save("get.py", GET_FIRST)
    with serving(mapper), serving(rabbit):
        with programs.running("sample.py") as lines:
            assert lines.readline() == shown_output(RABBITMQ)
            programs.run("publish.py")
            assert lines.readline() == "order 18\n"  # so the first is acknowledged
        assert "17" not in programs.run("get.py")


async def test_the_sql_for_pgmq_calls_functions_that_pgmq_has(
    run_resources: RunResources, require_server: Callable[[str], str]
) -> None:
    with run_resources.empty_database(require_server("postgresql")) as url:
        connection = await asyncpg.connect(url)
        try:
            await connection.execute(SIGNATURES)
            for block in read(PAGES[PGMQ]):
                if block.kind == "sql":
                    await connection.execute(block.text)
            with pytest.raises(asyncpg.UndefinedFunctionError):
                await connection.execute("SELECT * FROM pgmq.read('orders', seconds => 30, qty => 1)")
        finally:
            await connection.close()
