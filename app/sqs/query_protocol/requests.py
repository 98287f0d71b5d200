"""The requests of the query protocol: the action is in a form, and answers are XML."""

from collections.abc import Mapping
from functools import partial

from app.http.asgi import Headers
from app.http.request_headers import RequestHeaders
from app.http.response import Response
from app.sqs.errors import AwsError, MissingAction
from app.sqs.protocol import QUEUES, TOPICS, AwsProtocol, NamedAction
from app.sqs.query_protocol.answers import SNS, SQS, QueryProtocol
from app.sqs.query_protocol.form import read_form
from app.sqs.query_protocol.parameters import json_of
from app.sqs.shapes.members import AnswerStruct

FORM = b"application/x-www-form-urlencoded"
CONTENT_TYPE = b"text/xml"
_ACTION = b"Action="
_PROTOCOLS: Mapping[str, QueryProtocol] = {QUEUES: SQS, TOPICS: SNS}
_SERVICES = {protocol.version: service for service, protocol in _PROTOCOLS.items()}


class QueryRequests(AwsProtocol):
    """Reads actions from forms, and writes answers in XML. The version of a form is that of its service."""

    def read(self, headers: RequestHeaders, raw: bytes, query: bytes) -> NamedAction:
        """Return the action of a form. Refuses with `InvalidRequest`, also a version that no service has."""
        form = read_form(raw, query)
        if form.version not in _SERVICES:
            raise MissingAction(f"The form names an Action, and the Version {' or '.join(_SERVICES)}.")
        return NamedAction(_SERVICES[form.version], form.action, partial(json_of, form))

    def answer(self, action: NamedAction, answer: AnswerStruct, request_id: str) -> Response:
        """Return the answer of an action."""
        content = _PROTOCOLS[action.service].xml_of(action.name, answer, request_id)
        return Response(content=content, content_type=CONTENT_TYPE, headers=_headers(request_id))

    def error(self, service: str, error: AwsError, message: str, request_id: str) -> Response:
        """Return the answer to a refused request."""
        content = _PROTOCOLS[service].xml_error(error, message, request_id)
        return Response(status=error.status, content=content, content_type=CONTENT_TYPE, headers=_headers(request_id))


def is_query_request(method: str, headers: Mapping[bytes, bytes], query: bytes) -> bool:
    """Return whether a request is a form, or a presigned request with the form in its query string."""
    if method == "GET":
        return query.startswith(_ACTION) or b"&" + _ACTION in query
    return method == "POST" and headers.get(b"content-type", b"").partition(b";")[0].strip().lower() == FORM


def _headers(request_id: str) -> Headers:
    return ((b"x-amzn-requestid", request_id.encode()),)
