"""The JSON protocol: a header names the action, and the body is a JSON object."""

from collections.abc import Mapping

import msgspec

from app.http.request_headers import RequestHeaders
from app.http.response import Response
from app.sqs.errors import AwsError
from app.sqs.protocol import QUEUES, AwsProtocol, NamedAction, request_id_header
from app.sqs.shapes.members import AnswerStruct

TARGET = b"x-amz-target"
PREFIX = b"AmazonSQS."
CONTENT_TYPE = b"application/x-amz-json-1.0"
NAMESPACE = "com.amazonaws.sqs"


class ErrorBody(msgspec.Struct):
    """The body of a refusal. SDKs choose the class of their exception by the type."""

    type: str = msgspec.field(name="__type")
    message: str


class JsonProtocol(AwsProtocol):
    """Reads actions and writes answers in JSON."""

    def read(self, headers: RequestHeaders, raw: bytes, query: bytes) -> NamedAction:
        """Return the action that the header names."""
        return NamedAction(QUEUES, headers.values[TARGET].removeprefix(PREFIX).decode("latin-1"), lambda _: raw)

    def answer(self, action: NamedAction, answer: AnswerStruct, request_id: str) -> Response:
        """Return the answer of an action."""
        return Response(answer, content_type=CONTENT_TYPE, headers=request_id_header(request_id))

    def error(self, service: str, error: AwsError, message: str, request_id: str) -> Response:
        """Return the answer to a refused request. Its header has the code that the query protocol has in its body."""
        headers = (*request_id_header(request_id), (b"x-amzn-query-error", f"{error.code};{error.fault}".encode()))
        body = ErrorBody(f"{NAMESPACE}#{error.name}", message)
        return Response(body, error.status, content_type=CONTENT_TYPE, headers=headers)


def is_json_request(headers: Mapping[bytes, bytes]) -> bool:
    """Return whether a request names an action of SQS in its header."""
    return headers.get(TARGET, b"").startswith(PREFIX)
