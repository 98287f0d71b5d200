"""A server can refuse durable messages while its store may lose them (S1.8)."""

from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import pytest

from app.broker.sending.durability import CHECK_SECONDS, DurabilityCheck
from app.domain.refusals import StoreUnavailable
from tests.api.api_server import ApiServer, problem
from tests.api.topic_requests import subscribe
from tests.api.transaction_requests import commit, locked, open_transaction, roll_back, shown
from tests.brokers import ChangedStore, OpenBroker

RISK = "synchronous_commit is off: a crash loses the last commits."


class RiskyStore:
    """What a store says of its durability. Counts how often it is asked."""

    def __init__(self) -> None:
        self.risks: list[str] = []
        self.reads = 0

    async def durability_risks(self) -> list[str]:
        self.reads += 1
        return list(self.risks)


@pytest.fixture
def risky_store() -> RiskyStore:
    """A store that is durable at first."""
    return RiskyStore()


def with_risks(api: ApiServer, risky_store: RiskyStore, *, is_required: bool) -> ApiServer:
    """Return a server over this store."""
    store: Any = ChangedStore(api.broker.store, durability_risks=risky_store.durability_risks)
    durability = DurabilityCheck(store, api.clock, is_required=is_required)
    broker: OpenBroker = replace(api.broker, store=store, durability=durability)
    return ApiServer(broker, api.clock, api.authenticator)


@pytest.fixture
async def strict(api: ApiServer, risky_store: RiskyStore) -> AsyncIterator[ApiServer]:
    """A server that accepts durable messages only while its store is durable."""
    strict = with_risks(api, risky_store, is_required=True)
    await strict.request_json("PUT", "/queues/orders", {})
    await strict.request_json("PUT", "/topics/orders", {})
    await subscribe(strict, "all", target_queue="orders")
    yield strict
    await strict.broker.durability.close()


async def weaken(api: ApiServer, risky_store: RiskyStore) -> None:
    """Let the store have a risk, and the server notice it."""
    risky_store.risks = [RISK]
    await api.clock.advance(CHECK_SECONDS)


MESSAGES = "/queues/orders/messages"
SENDS: dict[str, tuple[str, dict[str, Any]]] = {
    "send": (MESSAGES, {"json": {"body": 1}}),
    "send once": (MESSAGES, {"json": {"body": 1}, "headers": {"Idempotency-Key": "k"}}),
    "batch": (f"{MESSAGES}/batch", {"json": {"messages": [{}, {}]}}),
    "batch of single messages": (f"{MESSAGES}/batch", {"json": {"messages": [{}, {}], "atomic": False}}),
    "raw": (f"{MESSAGES}/raw", {"content": b"1"}),
    "publish": ("/topics/orders/messages", {"json": {}}),
    "publish once": ("/topics/orders/messages", {"json": {}, "headers": {"Idempotency-Key": "k"}}),
    "publish a batch": ("/topics/orders/messages/batch", {"json": {"messages": [{}]}}),
    "execute": ("/transactions/execute", {"json": {"sends": [{"queue": "orders"}]}}),
    "execute a publish": ("/transactions/execute", {"json": {"publishes": [{"topic": "orders"}]}}),
}


@pytest.mark.behaviour("S1.8")
@pytest.mark.parametrize("kind", SENDS)
async def test_durable_messages_are_accepted_exactly_while_the_store_is_durable(
    strict: ApiServer, risky_store: RiskyStore, kind: str
) -> None:
    path, request = SENDS[kind]
    await weaken(strict, risky_store)
    refused = await strict.request("POST", path, **request)
    assert RISK in problem(refused, 503, "store-not-durable")["detail"]
    assert refused.json()["retryable"] is True
    assert refused.headers["retry-after"] == "1"
    assert await strict.counts() == {}
    risky_store.risks = []
    await strict.clock.advance(CHECK_SECONDS)
    assert (await strict.request("POST", path, **request)).status_code in (200, 201)
    assert sum((await strict.counts()).values()) in (1, 2)


@pytest.mark.behaviour("S1.8")
async def test_what_promises_no_durability_is_accepted(strict: ApiServer, risky_store: RiskyStore) -> None:
    for _ in range(2):
        await strict.send()
    first, second = await strict.receive(max_messages=2)
    await weaken(strict, risky_store)
    volatile = await strict.request("POST", MESSAGES, {"body": 3, "durability": "volatile"})
    assert volatile.status_code == 202
    await strict.broker.volatile_buffer.close()
    (third,) = await strict.receive()
    assert third["body"] == 3
    assert (await strict.settle(first, "complete")).status_code == 200
    assert (await strict.settle(second, "abandon")).status_code == 200
    assert (await strict.settle(third, "commit")).status_code == 200
    unmatched = await strict.request("POST", "/topics/others/messages", {})
    assert unmatched.status_code == 404
    await strict.request_json("PUT", "/topics/others", {})
    assert (await strict.request_json("POST", "/topics/others/messages", {}))["stored"] is False


@pytest.mark.behaviour("S1.8")
async def test_a_commit_with_sends_is_refused_and_settles_nothing(strict: ApiServer, risky_store: RiskyStore) -> None:
    message = await locked(strict)
    await weaken(strict, risky_store)
    refused = await strict.settle(message, "commit", sends=[{"queue": "orders"}])
    problem(refused, 503, "store-not-durable")
    assert await strict.counts() == {"locked": 1}


@pytest.mark.behaviour("S1.8")
async def test_a_transaction_that_would_store_messages_stays_open(strict: ApiServer, risky_store: RiskyStore) -> None:
    message = await locked(strict)
    transaction = await open_transaction(strict)
    await strict.send(transaction_id=transaction)
    settling = await open_transaction(strict)
    assert (await strict.settle(message, "complete", transaction_id=settling)).status_code in (200, 202)
    await weaken(strict, risky_store)
    refused = await strict.request("POST", MESSAGES, {"transaction_id": transaction})
    problem(refused, 503, "store-not-durable")
    problem(await commit(strict, transaction), 503, "store-not-durable")
    assert (await shown(strict, transaction))["state"] == "open"
    assert (await commit(strict, settling)).status_code == 200, "it stores no message"
    risky_store.risks = []
    await strict.clock.advance(CHECK_SECONDS)
    assert (await commit(strict, transaction)).status_code == 200
    await weaken(strict, risky_store)
    assert (await commit(strict, transaction)).status_code == 200, "a repeat is told what has happened"
    assert (await roll_back(strict, await open_transaction(strict))).status_code == 200


async def test_a_repeat_of_an_accepted_send_gets_its_receipt(strict: ApiServer, risky_store: RiskyStore) -> None:
    path, request = SENDS["send once"]
    receipt = (await strict.request("POST", path, **request)).json()
    await weaken(strict, risky_store)
    assert (await strict.request("POST", path, **request)).json() == receipt


async def test_the_store_is_asked_once_in_some_seconds(strict: ApiServer, risky_store: RiskyStore) -> None:
    for _ in range(3):
        await strict.send()
    assert risky_store.reads == 1
    await strict.clock.advance(CHECK_SECONDS)
    for _ in range(3):
        await strict.send()
    assert risky_store.reads == 2


async def test_a_server_that_does_not_require_it_never_asks(api: ApiServer, risky_store: RiskyStore) -> None:
    risky_store.risks = [RISK]
    lenient = with_risks(api, risky_store, is_required=False)
    await lenient.send()
    assert risky_store.reads == 0


async def test_while_the_durability_is_unknown_durable_messages_are_refused(api: ApiServer) -> None:
    async def fails() -> list[str]:
        raise StoreUnavailable("The database is gone.")

    store: Any = ChangedStore(api.broker.store, durability_risks=fails)
    durability = DurabilityCheck(store, api.clock, is_required=True)
    unknown = ApiServer(replace(api.broker, durability=durability), api.clock, None)
    problem(await unknown.request("POST", MESSAGES, {}), 503, "store-unavailable")


@pytest.mark.parametrize("is_required", [False, True])
@pytest.mark.parametrize("risks", [[], [RISK]])
async def test_a_server_says_whether_it_accepts_durable_messages(
    api: ApiServer, risky_store: RiskyStore, is_required: bool, risks: list[str]
) -> None:
    risky_store.risks = risks
    server = with_risks(api, risky_store, is_required=is_required)
    store = (await server.request_json("GET", "/capabilities"))["store"]
    assert store["accepts_durable_messages"] is not (is_required and bool(risks))
    assert store["durable"] is not bool(risks)
