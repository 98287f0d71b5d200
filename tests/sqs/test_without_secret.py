"""A server with keys that has no PEEKLOCK_SQS_SECRET cannot verify signatures, and says so."""

from dataclasses import replace

import httpx

from app.api.application import build_application
from app.http.access_log import with_access_log
from app.http.request_id import RequestIdMiddleware
from app.sqs.application import with_sqs
from tests.api.api_server import open_api_server
from tests.sqs.sqs_server import BASE_URL

LIST_QUEUES = {"x-amz-target": "AmazonSQS.ListQueues", "content-type": "application/x-amz-json-1.0"}


async def test_all_requests_are_refused_and_the_setting_is_named() -> None:
    async with open_api_server(needs_keys=True) as api:
        context = replace(api.context, sqs_secret=None)
        both = with_sqs(build_application(context), context, url=None)
        transport = httpx.ASGITransport(RequestIdMiddleware(with_access_log(both)))
        async with httpx.AsyncClient(transport=transport, base_url=BASE_URL) as client:
            answer = await client.post("/", json={}, headers=LIST_QUEUES)
    assert (answer.status_code, answer.json()["__type"]) == (403, "com.amazonaws.sqs#AccessDeniedException")
    assert "PEEKLOCK_SQS_SECRET" in answer.json()["message"]
