"""The clients of a soak settle each other's messages in every way, and their account covers both interfaces."""

from collections.abc import AsyncIterator, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from itertools import count
from random import Random
from typing import Any

import pytest

from app.sqs.message_ids import message_id_of
from benchmarks.load import Connection
from benchmarks.rows.soak import soak_callers
from benchmarks.soak_clients import NativeClient, SqsClient, sequence_number
from benchmarks.soak_load import LOCK_SECONDS, MessageLog, SoakClient, Steps
from benchmarks.sqs_access import SQS_SETTINGS, through_sqs
from benchmarks.systems import System, call, peeklock

WAYS = [(kind, steps) for kind in (NativeClient, SqsClient) for steps in kind.ways]
LEFT = {
    (): "locked",
    ("abandon",): "available",
    ("dead-letter",): "dead_lettered",
    ("defer",): "deferred",
}
"""What becomes of a message that is not completed."""
NUMBERS = count(1)
MILLISECOND = timedelta(milliseconds=1)


class Always(Random):
    """Chooses the same way for each delivery."""

    def __init__(self, *steps: str) -> None:
        super().__init__()
        self._steps = steps

    def choices(self, *_: Any, **__: Any) -> list[Any]:
        return [self._steps]


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mapping[type[SoakClient], System]]:
    """A server on SQLite through both interfaces."""
    with peeklock(tmp_path_factory.mktemp("soak"), None, None, more=SQS_SETTINGS) as ours:
        yield {NativeClient: ours, SqsClient: through_sqs(ours)}


class Soak:
    """A queue of the server, and the account of its messages."""

    def __init__(self, systems: Mapping[type[SoakClient], System], connection: Connection) -> None:
        self.systems = systems
        self.server = systems[NativeClient]
        self.path = f"/v1/queues/{self.server.target.queue}"
        self.connection = connection
        self.log = MessageLog()

    def client(self, kind: type[SoakClient], *steps: str) -> SoakClient:
        """Return a client that settles each delivery in this way."""
        return kind(self.connection, self.systems[kind].target, self.log, Always(*steps))

    def messages(self) -> list[dict[str, Any]]:
        """What the server still has."""
        return call(self.server, "GET", f"{self.path}/messages")["items"]

    def unaccounted(self) -> int:
        """Return how many messages are astray."""
        return self.log.unaccounted({message["sequence_number"] for message in self.messages()})


@pytest.fixture
async def soak(running: Mapping[type[SoakClient], System]) -> AsyncIterator[Soak]:
    queue = f"soak-{next(NUMBERS)}"
    systems = {kind: system.with_queue(queue) for kind, system in running.items()}
    server = systems[NativeClient]
    call(server, "PUT", f"/v1/queues/{queue}", {"lock_duration_seconds": LOCK_SECONDS, "retry": {"kind": "none"}})
    connection = await server.target.connect()
    yield Soak(systems, connection)
    connection.close()


def other(kind: type[SoakClient]) -> type[SoakClient]:
    """Return the client of the other interface."""
    return SqsClient if kind is NativeClient else NativeClient


@pytest.mark.parametrize(("kind", "steps"), WAYS)
async def test_a_client_settles_messages_of_the_other_interface(
    soak: Soak, kind: type[SoakClient], steps: Steps
) -> None:
    await soak.client(other(kind)).send_one()
    await soak.client(kind, *steps).receive_and_settle()
    assert [message["state"] for message in soak.messages()] == ([LEFT[steps]] if steps in LEFT else [])
    assert soak.log.crossed(other(kind).interface, kind.interface) == (steps not in LEFT)
    assert (soak.unaccounted(), soak.log.lost_locks) == (0, 0)


@pytest.mark.parametrize(("step", "seconds"), [("lengthen", 2 * LOCK_SECONDS), ("shorten", LOCK_SECONDS / 2)])
async def test_sqs_gives_a_lock_an_exact_end(soak: Soak, step: str, seconds: float) -> None:
    client = soak.client(SqsClient, step)
    await client.send_one()
    before = datetime.now(UTC)
    await client.receive_and_settle()
    (message,) = soak.messages()
    end = datetime.fromisoformat(message["locked_until"]) - timedelta(seconds=seconds)
    assert before - MILLISECOND <= end <= datetime.now(UTC)


@pytest.mark.parametrize("kind", [NativeClient, SqsClient])
async def test_a_lock_that_is_lost_completes_nothing(soak: Soak, kind: type[SoakClient]) -> None:
    client = soak.client(kind)
    await client.send_one()
    (delivery,) = await client.receive()
    call(soak.server, "PATCH", soak.path, {"status": "send_disabled"})
    await client.settle(delivery, (kind.completion,))
    assert (soak.log.lost_locks, len(soak.log.completed), soak.unaccounted()) == (1, 0, 0)


async def test_half_of_the_callers_use_sqs(soak: Soak) -> None:
    callers = soak_callers(soak.server, [soak.connection] * 4, soak.log)
    for _ in range(10):
        for caller in callers:
            await caller.run_once()
    accepted, completed = list(soak.log.accepted.values()), list(soak.log.completed.values())
    assert accepted.count("native") == accepted.count("SQS") == 20
    assert completed
    assert soak.unaccounted() == 0


@pytest.mark.parametrize("kind", [NativeClient, SqsClient])
async def test_a_forgotten_completion_is_astray(soak: Soak, kind: type[SoakClient]) -> None:
    client = soak.client(kind, kind.completion)
    client.completion = "none"
    await client.run_once()
    assert soak.unaccounted() == 1


@pytest.mark.parametrize("kind", [NativeClient, SqsClient])
async def test_a_delivery_after_a_completion_is_astray(soak: Soak, kind: type[SoakClient]) -> None:
    claims = soak.client(kind, "abandon")
    claims.completion = "abandon"
    await claims.run_once()
    assert soak.unaccounted() == 1
    await soak.client(other(kind), other(kind).completion).receive_and_settle()
    assert (soak.log.seen_again, soak.unaccounted()) == (1, 1)


def test_the_number_in_a_message_id_is_the_sequence_number() -> None:
    numbers = [1, 10**18 - 1, (1 << 62) - 1]
    assert [sequence_number(message_id_of(number)) for number in numbers] == numbers
