"""The query protocol: a form names the action and its service, and answers are XML."""

from collections.abc import Mapping
from functools import partial

from app.http.request_headers import RequestHeaders
from app.http.response import Response
from app.sqs.errors import AwsError, MissingAction
from app.sqs.protocol import QUEUES, TOPICS, AwsProtocol, NamedAction, request_id_header
from app.sqs.query_protocol.answers import SNS, SQS, QueryService
from app.sqs.query_protocol.form import read_form
from app.sqs.query_protocol.parameters import json_of
from app.sqs.shapes.members import AnswerStruct

FORM = b"application/x-www-form-urlencoded"
CONTENT_TYPE = b"text/xml"
_ACTION = b"Action="
_SERVICES: Mapping[str, QueryService] = {QUEUES: SQS, TOPICS: SNS}
_NAME_OF_VERSION = {service.version: name for name, service in _SERVICES.items()}


class QueryProtocol(AwsProtocol):
    """Reads actions from forms, and writes answers in XML. The version of a form is that of its service."""

    def read(self, headers: RequestHeaders, raw: bytes, query: bytes) -> NamedAction:
        """Return the action of a form. Refuses with `InvalidRequest`, also a version that no service has."""
        form = read_form(raw, query)
        if form.version not in _NAME_OF_VERSION:
            raise MissingAction(f"The form names an Action, and the Version {' or '.join(_NAME_OF_VERSION)}.")
        return NamedAction(_NAME_OF_VERSION[form.version], form.action, partial(json_of, form))

    def answer(self, action: NamedAction, answer: AnswerStruct, request_id: str) -> Response:
        """Return the answer of an action."""
        content = _SERVICES[action.service].xml_of(action.name, answer, request_id)
        return Response(content=content, content_type=CONTENT_TYPE, headers=request_id_header(request_id))

    def error(self, service: str, error: AwsError, message: str, request_id: str) -> Response:
        """Return the answer to a refused request."""
        content = _SERVICES[service].xml_error(error, message, request_id)
        return Response(
            status=error.status, content=content, content_type=CONTENT_TYPE, headers=request_id_header(request_id)
        )


def is_query_request(method: str, headers: Mapping[bytes, bytes], query: bytes) -> bool:
    """Return whether a request is a form, or a presigned request with the form in its query string."""
    if method == "GET":
        return query.startswith(_ACTION) or b"&" + _ACTION in query
    return method == "POST" and headers.get(b"content-type", b"").partition(b";")[0].strip().lower() == FORM
