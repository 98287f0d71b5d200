"""Schemathesis makes up requests from the OpenAPI document: none may find a bug, or an answer not promised."""

from collections.abc import Iterator

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, settings
from schemathesis.core.parameters import ParameterLocation
from schemathesis.specs.openapi.checks import negative_data_rejection, positive_data_acceptance

from app.api.document import openapi_document
from tests.api.loose_batches import refuses_each_bad_message
from tests.databases import Run
from tests.faults.fleet import PeeklockServer

EXAMPLES = 25
"""Requests per operation: what fits beside everything else in a run."""

KEY = "pk_" + "made-for-this-test" * 2

NOT_HELD = [
    positive_data_acceptance,  # a schema cannot say which cursors, tags and filters are good
    negative_data_rejection,  # bad_data_is_refused stands for it
]
TAKES_ANYTHING = "POST /v1/queues/{queue}/messages/raw"
SENDS_A_BATCH = "POST /v1/queues/{queue}/messages/batch"

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
    case.call_and_validate(
        base_url=server.url,
        headers={"Authorization": f"Bearer {KEY}"},
        additional_checks=[bad_data_is_refused],
        excluded_checks=NOT_HELD,
    )


def bad_data_is_refused(
    ctx: schemathesis.CheckContext, response: schemathesis.Response, case: schemathesis.Case
) -> bool | None:
    """Hold answers to Schemathesis' own rule, except where the document promises something else."""
    if case.operation.label == TAKES_ANYTHING or refuses_bad_messages_alone(response, case):
        return None
    return negative_data_rejection(ctx, response, case)


def refuses_bad_messages_alone(response: schemathesis.Response, case: schemathesis.Case) -> bool:
    """Whether only messages of a batch were made to break the document, and the batch is stored without them."""
    if case.operation.label != SENDS_A_BATCH or response.status_code != 201:
        return False
    assert case.meta is not None
    bad = {location for location in case.meta.components if case.meta.is_negative_at(location)}
    return bad == {ParameterLocation.BODY} and refuses_each_bad_message(case.body, response.json()["results"])
