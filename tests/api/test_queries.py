"""A query parameter that an operation does not declare is refused, because ignoring it could do harm."""

import pytest

from app.api.endpoints.routes import OPERATIONS
from app.domain.refusals import InvalidRequest
from app.http.operation import Operation
from app.http.query import query_decoder
from tests.api.api_server import ApiServer, pointers, problem
from tests.api.expected_rights import PAGES, PATH_VALUES, RIGHTS, headers_of
from tests.walks import for_each

PROBES = ("/livez", "/readyz")
"""A query that a load balancer adds must not make a healthy server fail its probe."""

STRICT = [asked for asked in RIGHTS if not asked[1].startswith((*PROBES, *PAGES))]
TOLERANT = [asked for asked in RIGHTS if asked not in STRICT]
DECLARED = [operation for operation in OPERATIONS if operation.query is not None]

IN_THE_BODY = [
    ("/queues/orders/purge?dry_run=true", "dry_run"),
    ("/queues/orders/purge?limit=1", "limit"),
    ("/queues/orders/dead-letter/redrive?to_queue=others", "to_queue"),
    ("/queues/orders/restore?dry_run=true", "dry_run"),
    ("/queues/orders/messages?delay_seconds=60", "delay_seconds"),
    ("/queues/orders/messages/receive?wait_seconds=20", "wait_seconds"),
    (f"/queues/orders/locks/1.{'0' * 32}/abandon?delay_seconds=5", "delay_seconds"),
    ("/topics/orders/messages?priority=9", "priority"),
    ("/archive/trim?batches=1", "batches"),
]


@for_each(("method", "path"), STRICT, " ".join)
async def test_no_operation_ignores_a_parameter(api: ApiServer, method: str, path: str) -> None:
    (headers,) = [
        headers_of(operation) for operation in OPERATIONS if (operation.method, operation.path) == (method, path)
    ]
    answer = await api.http.request(method, path.format(**PATH_VALUES), params={"unheard_of": "1"}, headers=headers)
    assert pointers(answer) == ["#/query/unheard_of"]


@pytest.mark.parametrize(("method", "path"), TOLERANT, ids=" ".join)
async def test_probes_and_pages_are_answered_with_any_query(api: ApiServer, method: str, path: str) -> None:
    answer = await api.http.request(method, path, params={"unheard_of": "1"}, follow_redirects=True)
    assert answer.status_code == 200


@pytest.mark.parametrize(("target", "name"), IN_THE_BODY, ids=[target for target, _ in IN_THE_BODY])
async def test_a_parameter_that_belongs_in_the_body_is_pointed_there(api: ApiServer, target: str, name: str) -> None:
    answer = await api.request("POST", target, {})
    assert pointers(answer) == [f"#/query/{name}"]
    sentence = f"This operation has no query parameter `{name}`. Send `{name}` in the body."
    assert answer.json()["detail"] == sentence


async def test_a_refused_purge_removes_nothing(api: ApiServer) -> None:
    await api.request_json("PUT", "/queues/orders", {})
    await api.send(body=1)
    problem(await api.request("POST", "/queues/orders/purge?dry_run=true", {}), 422, "invalid-request")
    assert await api.counts() == {"available": 1}


@pytest.mark.parametrize(
    ("method", "target", "advice"),
    [
        ("GET", "/queues?limt=1", "Did you mean `limit`?"),
        ("GET", "/queues?order=name", "It has `limit`, `cursor`."),
        ("POST", "/queues/orders/purge?dryrun=true", "Did you mean `dry_run`?"),
        ("POST", "/queues/orders/messages/raw?delay_seconds=60", "Send it as the header `Peeklock-Delay-Seconds`."),
        ("POST", "/queues/orders/messages?idempotency-key=a", "Did you mean `idempotency_key`?"),
        ("POST", "/queues/orders/messages?idempotency_key=a", "Send it as the header `Idempotency-Key`."),
        ("GET", "/queues/orders?x=1", ""),
    ],
)
async def test_the_refusal_says_what_exists_instead(api: ApiServer, method: str, target: str, advice: str) -> None:
    answer = await api.request(method, target)
    name = target.partition("?")[2].partition("=")[0]
    sentence = f"This operation has no query parameter `{name}`. {advice}".rstrip()
    assert problem(answer, 422, "invalid-request")["detail"] == sentence


@for_each("operation", DECLARED, lambda operation: operation.name)
@pytest.mark.parametrize("value", ["", "1", "12"])
def test_no_parameter_is_given_twice_unless_it_is_a_list(operation: Operation, value: str) -> None:
    """A value of one character is one object for the interpreter, so values are not compared."""
    assert operation.query is not None
    for name in {*operation.query.__struct_fields__} - {"state"}:
        with pytest.raises(InvalidRequest) as refused:
            query_decoder(operation)(f"{name}={value}&{name}={value}".encode())
        assert refused.value.field_errors[0].detail == "This parameter is given more than once."


async def test_a_long_unknown_name_is_shortened(api: ApiServer) -> None:
    answer = await api.request("GET", "/queues?" + "a" * 5000)
    assert len(answer.content) < 1500
    assert "[...]" in answer.json()["detail"]


@pytest.mark.parametrize("query", ["?", "?&", "?&&"])
async def test_an_empty_query_has_no_parameters(api: ApiServer, query: str) -> None:
    await api.request_json("PUT", f"/queues/orders{query}", {})
