"""A server on loopback that needs no key yet: programs of this machine may use it, and web pages may not."""

import pytest

from tests.sqs.sqs_server import SqsServer

FORM = {"content-type": "application/x-www-form-urlencoded"}
CREATE = "Action=CreateQueue&Version=2012-11-05&QueueName=orders"


@pytest.mark.parametrize("signature", ["", "&X-Amz-Signature=00&X-Amz-Credential=x", "&Signature=x&AWSAccessKeyId=x"])
async def test_no_action_is_carried_out_in_a_get_request(sqs: SqsServer, signature: str) -> None:
    response = await sqs.http.get(f"/?{CREATE}{signature}")
    assert response.status_code == 403
    assert "MissingAuthenticationToken" in response.text
    assert "as the form of a POST request" in response.text
    assert await sqs.call("ListQueues") == {}


@pytest.mark.parametrize("headers", [{"origin": "https://evil.example"}, {"sec-fetch-site": "cross-site"}])
async def test_no_page_of_another_site_sends_a_form(sqs: SqsServer, headers: dict[str, str]) -> None:
    response = await sqs.http.post("/", content=CREATE, headers={**FORM, **headers})
    assert response.status_code == 403
    assert "AccessDenied" in response.text
    assert await sqs.call("ListQueues") == {}


async def test_a_program_sends_a_form_without_a_signature(sqs: SqsServer) -> None:
    response = await sqs.http.post("/", content=CREATE, headers=FORM)
    assert response.status_code == 200
    assert "<QueueUrl>http://peeklock.test/000000000000/orders</QueueUrl>" in response.text
