"""Schemathesis generates requests from the OpenAPI document. None may find a bug or an undocumented answer.

The requests to an operation are generated when its test runs. The decorator of Schemathesis would generate many of them
while pytest collects, in each worker.
"""

from collections.abc import Iterator
from typing import Any

import pytest
import requests
import schemathesis
from hypothesis import HealthCheck, Phase, settings
from jsonschema import Draft202012Validator
from schemathesis.core import NotSet
from schemathesis.core.parameters import ParameterLocation
from schemathesis.generation.hypothesis.builder import HypothesisTestConfig, HypothesisTestMode, create_test
from schemathesis.schemas import BaseSchema
from schemathesis.specs.openapi.checks import negative_data_rejection, positive_data_acceptance

from app.api.openapi.document import openapi_document
from tests.api.non_atomic_batches import refuses_each_bad_message
from tests.databases import RunResources
from tests.faults.fleet import PeeklockServer

KEY = "pk_" + "made-for-this-test" * 2

DATABASES = {"sqlite": "sqlite_url", "postgresql": "postgres_url", "mariadb": "mariadb_url"}
"""The fixture that provides a database of each engine."""

MODES = (HypothesisTestMode.EXAMPLES, HypothesisTestMode.FUZZING)
"""The examples of the document, and random requests."""
LIMITS = (HypothesisTestMode.COVERAGE,)
"""Every limit of the schemas from both sides: up to hundreds of requests to one operation. A request beyond a limit is refused
before it reaches a database, so one engine is enough for limits.
"""
LIMITS_IN_EVERY_RUN = ("send_message", "receive_messages", "put_queue", "browse_messages")
"""Operations with most of the kinds of limits. A nightly run tries those of all."""
RANDOM_REQUESTS, NIGHTLY_RANDOM_REQUESTS = 4, 25
"""For each operation."""

SKIPPED_CHECKS = [
    positive_data_acceptance,  # a schema cannot express which cursors, tags and filters are valid
    negative_data_rejection,  # bad_data_is_refused replaces it
]
TAKES_ANYTHING = "POST /v1/queues/{queue}/messages/raw"
SENDS_A_BATCH = "POST /v1/queues/{queue}/messages/batch"

SETTINGS = settings(
    derandomize=True,
    deadline=None,
    phases=[Phase.explicit, Phase.generate],
    suppress_health_check=list(HealthCheck),
)

DOCUMENT = openapi_document()
OPERATIONS = [found["operationId"] for methods in DOCUMENT["paths"].values() for found in methods.values()]


@pytest.fixture(
    scope="module",
    params=["sqlite", *(pytest.param(name, marks=pytest.mark.nightly) for name in ("postgresql", "mariadb"))],
)
def store(request: pytest.FixtureRequest) -> str:
    """The engine of the database."""
    return request.param


@pytest.fixture(scope="module")
def server(run_resources: RunResources, store: str, request: pytest.FixtureRequest) -> Iterator[PeeklockServer]:
    """`peeklock serve` on an empty database, with one key, so that it needs one."""
    url = request.getfixturevalue(DATABASES[store])
    options = (f"PEEKLOCK_DATABASE_URL={url}", "PEEKLOCK_LONG_POLL_CAP_SECONDS=0.05", f"PEEKLOCK_BOOTSTRAP_KEY={KEY}")
    server = PeeklockServer(run_resources.new_directory(), *options)
    server.start()
    yield server
    server.stop()


@pytest.fixture(scope="module")
def document() -> BaseSchema:
    """Load the schema from which the requests are generated."""
    return schemathesis.openapi.from_dict(DOCUMENT)


@pytest.fixture(scope="module")
def session() -> Iterator[requests.Session]:
    """Connections that stay open, for thousands of requests."""
    with requests.Session() as session:
        yield session


def test_operations_whose_limits_are_tried_in_every_run_exist() -> None:
    assert set(LIMITS_IN_EVERY_RUN) <= set(OPERATIONS)


@pytest.mark.parametrize("operation", OPERATIONS)
def test_no_request_finds_a_bug_or_a_broken_promise(
    operation: str,
    document: BaseSchema,
    server: PeeklockServer,
    session: requests.Session,
    store: str,
    pytestconfig: pytest.Config,
) -> None:
    is_nightly = pytestconfig.getoption("--tier") == "nightly"
    has_limits = store == "sqlite" and (is_nightly or operation in LIMITS_IN_EVERY_RUN)
    examples = NIGHTLY_RANDOM_REQUESTS if is_nightly else RANDOM_REQUESTS

    def is_answered_well(case: schemathesis.Case) -> None:
        case.call_and_validate(
            base_url=server.url,
            session=session,
            headers={"Authorization": f"Bearer {KEY}"},
            additional_checks=[bad_data_is_refused],
            excluded_checks=SKIPPED_CHECKS,
        )

    create_test(
        operation=document.find_operation_by_id(operation),
        test_func=is_answered_well,
        config=HypothesisTestConfig(
            modes=[*MODES, *(LIMITS if has_limits else ())],
            settings=settings(SETTINGS, max_examples=examples),
            project=document.config,
        ),
    )()


def bad_data_is_refused(
    ctx: schemathesis.CheckContext, response: schemathesis.Response, case: schemathesis.Case
) -> bool | None:
    """Apply the rule of Schemathesis, except where the document declares something else."""
    if case.operation.label == TAKES_ANYTHING or is_empty(case) or is_only_null_too_often(case):
        return None
    if refuses_bad_messages_alone(response, case):
        return None
    return negative_data_rejection(ctx, response, case)


def is_empty(case: schemathesis.Case) -> bool:
    """Return whether a request has no body, or `null`: then most operations take every default."""
    return case.body is None or isinstance(case.body, NotSet)


def is_only_null_too_often(case: schemathesis.Case) -> bool:
    """Return whether a body is as the document says once its nulls are left out, which the server takes for the same."""
    assert case.meta is not None
    bad = {location for location in case.meta.components if case.meta.is_negative_at(location)}
    return bad == {ParameterLocation.BODY} and case.body != without_nulls(case.body) and is_documented(case)


def without_nulls(value: Any) -> Any:
    """Return a value without the members of objects that are null."""
    if isinstance(value, dict):
        return {name: without_nulls(member) for name, member in value.items() if member is not None}
    return [without_nulls(entry) for entry in value] if isinstance(value, list) else value


def is_documented(case: schemathesis.Case) -> bool:
    """Return whether the document allows the body of a request without its nulls."""
    operation = DOCUMENT["paths"][case.operation.path][case.operation.method.lower()]
    contents = [content["schema"] for kind, content in operation["requestBody"]["content"].items() if "json" in kind]
    schemas = [{**schema, "components": DOCUMENT["components"]} for schema in contents]
    return any(Draft202012Validator(schema).is_valid(without_nulls(case.body)) for schema in schemas)


def refuses_bad_messages_alone(response: schemathesis.Response, case: schemathesis.Case) -> bool:
    """Return whether only messages of a batch violate the document, and the batch is stored without them."""
    if case.operation.label != SENDS_A_BATCH or response.status_code != 201:
        return False
    assert case.meta is not None
    bad = {location for location in case.meta.components if case.meta.is_negative_at(location)}
    return bad == {ParameterLocation.BODY} and refuses_each_bad_message(case.body, response.json()["results"])
