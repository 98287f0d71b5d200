"""The guard: nothing is done for whoever may not ask for it, and no operation is left without a guard."""

import pytest

from app.api.operation import Operation
from app.api.routes import OPERATIONS
from app.domain.access import Right
from tests.api.house import House, open_house, problem
from tests.bounds import bounded

OPEN = {"check_live", "check_ready", "read_metrics"}
GUARDED = [operation for operation in OPERATIONS if operation.name not in OPEN]
ALL_NAMES = ("/v1/queues", "/v1/archive/batches", "/v1/archive/trim", "/v1/keys", "/v1/keys/{key_id}")

each = pytest.mark.parametrize("operation", GUARDED, ids=lambda operation: operation.name)


def path_of(operation: Operation) -> str:
    values = {"queue": "orders", "sequence_number": "1", "lock_token": f"1.{'0' * 32}", "key_id": "x"}
    return operation.path.format(**values)


def bearer(secret: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {secret}"}


def test_what_is_open_is_meant_to_be() -> None:
    assert {operation.name for operation in OPERATIONS if operation.right is None} == OPEN


@each
async def test_without_a_key_nobody_gets_in(guarded: House, operation: Operation) -> None:
    answer = await guarded.http.request(operation.method, path_of(operation))
    problem(answer, 401, "unauthenticated")
    assert answer.headers["www-authenticate"].startswith("Bearer")


@each
async def test_a_key_without_the_right_is_refused(guarded: House, operation: Operation) -> None:
    others = [right for right in Right if right is not operation.right]
    headers = bearer(await guarded.key(*others))
    problem(await guarded.http.request(operation.method, path_of(operation), headers=headers), 403, "forbidden")


@each
async def test_the_right_on_other_names_is_not_enough(guarded: House, operation: Operation) -> None:
    headers = bearer(await guarded.key(*Right, patterns=("invoices", "order", "orders.*", "Orders")))
    problem(await guarded.http.request(operation.method, path_of(operation), headers=headers), 403, "forbidden")


@each
async def test_the_right_alone_is_enough(guarded: House, operation: Operation) -> None:
    assert operation.right is not None
    pattern = "*" if operation.path in ALL_NAMES else "ord*"
    headers = bearer(await guarded.key(operation.right, patterns=(pattern,)))
    answer = await guarded.http.request(operation.method, path_of(operation), headers=headers)
    assert answer.status_code not in (401, 403, 500)


@each
async def test_whoever_may_not_ask_does_not_learn_what_is_there(guarded: House, operation: Operation) -> None:
    known = await guarded.http.request(operation.method, path_of(operation))
    await guarded.broker.catalogue.named_for_send("orders")
    unknown = await guarded.http.request(operation.method, path_of(operation))
    assert {**known.json(), "tracking_id": ""} == {**unknown.json(), "tracking_id": ""}


@pytest.mark.parametrize("path", ["/livez", "/readyz", "/metrics", "/openapi.json"])
async def test_these_are_open_to_everybody(guarded: House, path: str) -> None:
    assert (await guarded.http.get(path)).status_code == 200


@pytest.mark.parametrize(
    "authorization",
    ["", "Bearer", "Bearer ", "Basic dXNlcjpwYXNz", "Bearer nonsense", "Bearer " + "x" * 10_000, "Bearer \xff"],
)
async def test_what_is_no_key_opens_nothing(guarded: House, authorization: str) -> None:
    headers = {"Authorization": authorization.encode("latin-1")}
    problem(await guarded.call("GET", "/queues", headers=headers), 401, "unauthenticated")


async def test_the_scheme_may_be_written_in_any_case(guarded: House) -> None:
    secret = await guarded.key(Right.BROWSE)
    assert (await guarded.call("GET", "/queues", headers={"authorization": f"bEARER  {secret} "})).is_success


async def test_redriving_to_another_queue_needs_the_right_to_send_there(guarded: House) -> None:
    await guarded.broker.catalogue.named_for_send("orders")
    await guarded.broker.catalogue.named_for_send("repairs")
    headers = bearer(await guarded.key(Right.MANAGE, Right.SEND, patterns=("orders",)))
    path, body = "/queues/orders/dead-letter/redrive", {"to_queue": "repairs"}
    problem(await guarded.call("POST", path, body, headers=headers), 403, "forbidden")
    headers = bearer(await guarded.key(Right.MANAGE, Right.SEND))
    assert await guarded.ask("POST", path, body, headers=headers) == {"moved": 0}


async def test_the_body_of_a_stranger_is_not_read(guarded: House) -> None:
    async def endless():
        for _ in bounded("the request is refused"):
            yield b"x"

    answer = await guarded.call("POST", "/queues/orders/messages", content=endless())
    problem(answer, 401, "unauthenticated")


class TestWithoutKeys:
    """A server that needs no key serves whoever reaches it, but no page of another site."""

    @pytest.mark.parametrize("site", ["cross-site", "same-site"])
    async def test_a_page_of_another_site_is_refused(self, house: House, site: str) -> None:
        answer = await house.call("POST", "/queues/orders/messages", headers={"Sec-Fetch-Site": site})
        problem(answer, 403, "forbidden")
        assert (await house.ask("GET", "/queues"))["items"] == []

    @pytest.mark.parametrize("site", ["same-origin", "none"])
    async def test_other_requests_of_a_browser_are_served(self, house: House, site: str) -> None:
        answer = await house.call("POST", "/queues/orders/messages", headers={"Sec-Fetch-Site": site})
        assert answer.status_code == 201

    async def test_a_key_speaks_for_a_page_of_any_site(self) -> None:
        async with open_house(needs_keys=True) as house:
            headers = {**bearer(await house.key(Right.SEND)), "Sec-Fetch-Site": "cross-site"}
            assert (await house.call("POST", "/queues/orders/messages", headers=headers)).status_code == 201
