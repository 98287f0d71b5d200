"""Schemathesis makes up requests from the OpenAPI document: none may find a bug, or an answer not promised."""

from collections.abc import Iterator

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, settings
from schemathesis.specs.openapi.checks import negative_data_rejection, positive_data_acceptance

from app.api.document import openapi_document
from tests.databases import Run
from tests.faults.fleet import PeeklockServer

EXAMPLES = 25
"""Requests per operation: what fits beside everything else in a run."""

KEY = "pk_" + "made-for-this-test" * 2

NOT_HELD = [positive_data_acceptance]
"""A schema cannot say which cursors, tags and filters are good, so that what fits it may still be refused."""
TAKES_ANYTHING = "POST /v1/queues/{queue}/messages/raw"

schema = schemathesis.openapi.from_dict(openapi_document())


@pytest.fixture(scope="module")
def server(run: Run) -> Iterator[PeeklockServer]:
    """`peeklock serve` with its embedded database and one key, so that it needs one."""
    options = ("PEEKLOCK_DATA_DIR=store", "PEEKLOCK_LONG_POLL_CAP_SECONDS=0.05", f"PEEKLOCK_BOOTSTRAP_KEY={KEY}")
    server = PeeklockServer(run.new_directory(), *options)
    server.start()
    yield server
    server.stop()


@schema.parametrize()
@settings(
    max_examples=EXAMPLES,
    derandomize=True,
    deadline=None,
    phases=[Phase.explicit, Phase.generate],
    suppress_health_check=list(HealthCheck),
)
def test_no_request_finds_a_bug_or_a_broken_promise(case: schemathesis.Case, server: PeeklockServer) -> None:
    excluded = [*NOT_HELD, *([negative_data_rejection] if case.operation.label == TAKES_ANYTHING else [])]
    case.call_and_validate(base_url=server.url, headers={"Authorization": f"Bearer {KEY}"}, excluded_checks=excluded)
