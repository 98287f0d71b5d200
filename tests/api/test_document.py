"""The committed OpenAPI document is that of the server, in a form that client generators support."""

import json
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from app.api.application import FRAMEWORK_CODES
from app.api.endpoints.routes import OPERATIONS
from app.api.openapi.document import answer_examples, openapi_document
from app.api.openapi.problem_answers import NAMED_PROBLEMS
from app.domain.access import ANY_RIGHT
from app.http.problems import COMMON_CODES, TITLES, codes_of_status
from app.wire import field_descriptions
from app.wire.message_fields import MessageView
from tests.api.api_server import ApiServer
from tests.api.openapi_conformance import check_conformance, problem_codes, validator
from tests.walks import for_each

OPENAPI = Path(__file__).parents[2] / "openapi"
EXPORTED, GO_CONFIGURATION = OPENAPI / "openapi.json", OPENAPI / "sdk/go.yaml"
DOCUMENT = openapi_document()
SCHEMAS = DOCUMENT["components"]["schemas"]
DOCUMENTED_OPERATIONS = [operation for methods in DOCUMENT["paths"].values() for operation in methods.values()]

NULLABLE = {
    # Answers: what the server knows to be absent.
    "BatchPage.next_cursor", "BatchView.removal", "BatchView.removed_at", "CommittedMessage.version",
    "CreatedKey.expires_at", "CreatedKey.last_used_at", "CreatedKey.revoked_at", "HistoryPage.next_cursor",
    "CreatedKey.sqs_secret_access_key", "SqsCredentials.secret_access_key", "KeyPage.next_cursor", "KeyView.expires_at", "KeyView.last_used_at", "KeyView.revoked_at", "MessagePage.next_cursor",
    "MovePage.next_cursor", "MoveView.ended_at", "MoveView.rate_per_second", "MoveView.reason", "MoveView.to_queue",
    "QueueExplanationView.next_deliverable_at", "QueueExplanationView.next_due_at",
    "QueueExplanationView.next_lock_ends_at", "QueueExplanationView.next_waiting_settlement", "QueuePage.next_cursor",
    "QueueStatusView.oldest_available_seconds", "RefusedResult.lock_token", "SendAnswer.enqueued_at",
    "SendAnswer.sequence_number", "SentMessage.enqueued_at", "SentMessage.sequence_number", "SentResult.enqueued_at",
    "SentResult.sequence_number", "ServerLimits.max_queues", "StateView.message_id", "StateView.updated_at",
    "SubscriptionPage.next_cursor", "TopicPage.next_cursor", "TransactionDetails.cause", "TransactionDetails.member",
    "TransactionDetails.next_cursor", "VersionPage.next_cursor", "VersionView.message_id", "Versions.schema",
    # Settings without a value, in answers and in the requests that set them.
    *(
        f"{name}.{setting}"
        for name in ("QueueSettingsBody", "QueueStatusView", "QueueView")
        for setting in (
            "default_delay_seconds", "default_ttl_seconds", "default_wait_seconds", "duplicate_detection_window_seconds",
            "forward_dead_letters_to", "forward_to", "group_in_flight", "max_messages",
        )
    ),
    "SubscriptionSettingsBody.filter", "SubscriptionView.filter",
    # Merge patches, where null restores a default.
    "EditMessage.available_at", "EditMessage.delay_seconds", "EditMessage.priority", "EditMessage.properties",
    *(f"QueuePatch.{name}" for name in SCHEMAS["QueueSettingsBody"]["properties"]),
    "RetryPatch.factor", "RetryPatch.jitter", "RetryPatch.max_seconds", "SubscriptionPatch.filter",
    "SubscriptionPatch.labels", "SubscriptionPatch.remove_properties", "SubscriptionPatch.set_properties",
    "SubscriptionPatch.target_queue", "TopicPatch.description", "TopicPatch.labels",
}  # fmt: skip
"""Every field in which null means something."""

FREE_TYPES = ("Properties",)
"""Objects with names that the application chooses."""

PROBLEM = {
    "type": "urn:peeklock:problem:x", "title": "Not found", "status": 404, "detail": "x", "tracking_id": "1", "retryable": False
}  # fmt: skip
NAMES_SCHEMAS = ("schemas", "properties", "anyOf", "oneOf")
NOT_SCHEMA_PATHS = ("/properties", "/mapping", "/discriminator", "/example", "/ApiKey")

each_operation = for_each("promise", DOCUMENTED_OPERATIONS, lambda promise: promise["operationId"])


def walk(part: Any, where: str = "") -> Iterator[tuple[str, Any]]:
    """Yield every part of the document with its location."""
    yield where, part
    if isinstance(part, dict):
        for name, value in part.items():
            yield from walk(value, f"{where}/{name}")
    elif isinstance(part, list):
        for place, value in enumerate(part):
            yield from walk(value, f"{where}/{place}")


def schemas() -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield every schema of the document."""
    for where, part in walk(DOCUMENT):
        place = where.split("/")[-2] if "/" in where else ""
        if not isinstance(part, dict) or where.endswith(NOT_SCHEMA_PATHS):
            continue
        if "type" in part or place in NAMES_SCHEMAS or where.endswith("/items"):
            yield where, part


def test_the_committed_document_is_that_of_the_server() -> None:
    written = json.dumps(DOCUMENT, indent=2, ensure_ascii=False) + "\n"
    assert EXPORTED.read_text() == written, "run `python3 dev.py openapi`"


async def test_the_server_serves_its_document(api: ApiServer) -> None:
    assert (await api.http.get("/openapi.json")).json() == DOCUMENT


def test_every_operation_has_the_name_of_its_function() -> None:
    assert [promise["operationId"] for promise in DOCUMENTED_OPERATIONS] == sorted(
        (operation.name for operation in OPERATIONS),
        key=[promise["operationId"] for promise in DOCUMENTED_OPERATIONS].index,
    )
    assert len(DOCUMENTED_OPERATIONS) == len(OPERATIONS)


@each_operation
def test_every_operation_is_described(promise: dict[str, Any]) -> None:
    (tag,) = promise["tags"]
    assert tag in [declared["name"] for declared in DOCUMENT["tags"]]
    assert promise["summary"]
    assert not promise["summary"].endswith(".")
    assert promise["description"]
    assert promise["summary"] not in promise["description"]


@each_operation
def test_every_error_is_a_problem_document(promise: dict[str, Any]) -> None:
    for status, answer in promise["responses"].items():
        if status == "default" or int(status) >= 400:
            ((kind, content),) = answer["content"].items()
            assert (kind, content["schema"]["$ref"]) == ("application/problem+json", "#/components/schemas/Problem")


@each_operation
def test_every_problem_has_an_example_for_each_code_of_its_status(promise: dict[str, Any]) -> None:
    name = promise["operationId"]
    shown: set[str] = set()
    for status, content in problem_contents(promise):
        for code, example in content["examples"].items():
            problem = DOCUMENT["components"]["examples"][example["$ref"].rpartition("/")[2]]["value"]
            assert not list(validator(name, status, "application/problem+json").iter_errors(problem))
            assert (problem["code"], problem["title"]) == (code, TITLES[problem["status"]])
            assert code in codes_of_status(problem["status"])
            assert status in (str(problem["status"]), "default")
            assert problem["detail"]
            shown.add(code)
    assert problem_codes(name) <= shown <= problem_codes(name) | COMMON_CODES


def problem_contents(promise: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the content of each problem of an operation, with its status."""
    for status, answer in promise["responses"].items():
        if "application/problem+json" in answer.get("content", {}):
            yield status, answer["content"]["application/problem+json"]


@each_operation
def test_an_answer_without_content_declares_none(promise: dict[str, Any]) -> None:
    for status, answer in promise["responses"].items():
        assert ("content" in answer) == (status not in ("204", "304"))


@each_operation
def test_bodies_and_answers_are_named(promise: dict[str, Any]) -> None:
    contents = [answer.get("content", {}) for answer in promise["responses"].values()]
    contents.append(promise.get("requestBody", {}).get("content", {}))
    for kind, media in [item for content in contents for item in content.items()]:
        if "json" in kind:
            assert list(media["schema"]) == ["$ref"]


@each_operation
def test_every_success_with_json_has_the_same_schema(promise: dict[str, Any]) -> None:
    """A client would otherwise have to tell the types apart before it can read any field."""
    schemas = {
        answer["content"]["application/json"]["schema"]["$ref"]
        for status, answer in promise["responses"].items()
        if status.startswith("2") and "application/json" in answer.get("content", {})
    }
    assert len(schemas) <= 1


def test_a_received_message_has_a_lock_and_a_browsed_one_has_no_token() -> None:
    lock = {"lock_token", "locked_until", "lock_remaining_ms"}
    assert lock <= {*SCHEMAS["ReceivedMessage"]["required"]}
    assert lock & {*SCHEMAS["MessageView"]["properties"]} == {"locked_until"}
    for name in ("ReceivedMessages", "RecoveredMessages"):
        items = SCHEMAS[name]["properties"]["messages"]["items"]
        assert items == {"$ref": "#/components/schemas/ReceivedMessage"}


def test_null_is_allowed_only_where_it_means_something() -> None:
    nullable = {
        f"{name}.{field}"
        for name, schema in SCHEMAS.items()
        for field, member in schema.get("properties", {}).items()
        if is_nullable(member)
    }
    assert nullable == NULLABLE


def is_nullable(schema: dict[str, Any]) -> bool:
    return {"type": "null"} in schema.get("anyOf", ()) or "null" in schema.get("type", "")


def test_only_a_named_type_may_also_be_null_as_a_choice() -> None:
    """Some generators make an alias for each `anyOf`."""
    for where, schema in schemas():
        if {"type": "null"} in schema.get("anyOf", ()):
            assert list(schema["anyOf"][0]) == ["$ref"], where


def test_no_type_is_without_a_name() -> None:
    """A generator would make up a name for it, and another one after the next change."""
    for where, schema in schemas():
        is_component = where.count("/") == 3 and where.startswith("/components/schemas/")
        assert is_component or not {"enum", "oneOf", "properties"} & schema.keys(), where
        if schema.get("type") == "array" and not where.startswith("/paths"):
            assert not {*schema["items"]} - {"$ref", "type", "format"}, where


def test_no_two_types_have_names_that_generators_write_alike() -> None:
    """Nor is one the name that a generator gives to another, such as the `ReceiveMessagesBody` of an operation."""
    suffixes = ("", "Request", "Response", "Body", "Data", "Error", "Errors", "Enum", "Inner", "Api")
    made = [f"{schema}{suffix}".lower() for schema in SCHEMAS for suffix in suffixes]
    made += [
        f"{promise['operationId'].replace('_', '')}{suffix}".lower()
        for promise in DOCUMENTED_OPERATIONS
        for suffix in suffixes[1:]
    ]
    taken = [name.lower() for name in SCHEMAS]
    assert sorted({name for name in taken if made.count(name) > 1}) == []


def test_objects_of_requests_are_closed() -> None:
    for name, schema in SCHEMAS.items():
        if schema.get("type") == "object" and name not in FREE_TYPES:
            assert schema.get("additionalProperties", False) is False, name


def test_every_field_and_parameter_is_described() -> None:
    for name, schema in SCHEMAS.items():
        for field, member in schema.get("properties", {}).items():
            assert member["description"].endswith((".", "`")), f"{name}.{field}"
    for promise in DOCUMENTED_OPERATIONS:
        for parameter in promise.get("parameters", []):
            assert parameter["description"], f"{promise['operationId']}: {parameter['name']}"


def test_every_description_of_a_field_is_used() -> None:
    texts = tomllib.loads(field_descriptions.FILE.read_text())
    written = {text.strip() for table in (texts["fields"], *texts["structs"].values()) for text in table.values()}
    parts = json.dumps(DOCUMENT)
    assert not [text for text in written if json.dumps(text)[1:-1] not in parts]


@each_operation
def test_every_answer_has_an_example_that_conforms_to_it(promise: dict[str, Any]) -> None:
    for status, answer in promise["responses"].items():
        for kind, content in answer.get("content", {}).items():
            if kind == "application/json":
                errors = [
                    error.message
                    for error in validator(promise["operationId"], status, kind).iter_errors(content["example"])
                ]
                assert not errors, f"{status}: {errors[0]}"


def test_every_example_of_an_answer_is_used() -> None:
    used = [
        content["example"]
        for where, content in walk(DOCUMENT)
        if "/responses/" in where and where.endswith("/application/json")
    ]
    assert not [name for name, example in answer_examples().items() if example not in used]


def test_every_reference_resolves() -> None:
    for where, part in walk(DOCUMENT):
        if where.endswith("/$ref"):
            found: Any = DOCUMENT
            for name in part.removeprefix("#/").split("/"):
                found = found[name]


@pytest.mark.parametrize("kind", ["schemas", "examples", "headers"])
def test_every_shared_component_is_used(kind: str) -> None:
    used = {part for where, part in walk(DOCUMENT) if where.endswith("/$ref")}
    assert {f"#/components/{kind}/{name}" for name in DOCUMENT["components"][kind]} <= used


def test_numbers_have_formats() -> None:
    for where, schema in schemas():
        if schema.get("type") == "number":
            assert schema["format"] == "double", where
        if schema.get("type") == "integer":
            is_small = schema.get("maximum", 2**31) < 2**31
            assert schema["format"] == ("int32" if is_small else "int64"), where


def test_a_field_that_was_received_can_be_sent_in_typed_languages() -> None:
    """A client in Java or Go does not compile if it sends a received priority of 64 bits as one of 32."""
    sent, received = (SCHEMAS[name]["properties"] for name in ("SendMessage", "ReceivedMessage"))
    for field in sent.keys() & received.keys():
        if "format" in sent[field]:
            assert received[field]["format"] == sent[field]["format"], field
    assert SCHEMAS["Problem"]["properties"]["status"]["format"] == "int32"


def test_a_cause_is_that_of_a_lost_lock_or_of_a_rollback() -> None:
    assert {"expired", "timeout"} <= {*SCHEMAS["ProblemCause"]["enum"]}
    cause = SCHEMAS["Problem"]["properties"]["cause"]
    assert cause["description"] == "Why the lock was lost, or the transaction was rolled back."


def test_properties_have_no_union_of_scalars() -> None:
    """Nor the schema `{}`, of which clients in Go have pointers, nor `true`, of which some in Python lose the values."""
    assert SCHEMAS["Properties"]["additionalProperties"] == {"description": "A text, a number, true, false or null."}


@each_operation
def test_the_body_of_every_request_is_named_body_in_clients(promise: dict[str, Any]) -> None:
    """A client in Go does not compile if a body has the name of its schema, and the schema is called `Execute`."""
    assert promise.get("x-codegen-request-body-name") == ("body" if "requestBody" in promise else None)


def test_a_default_is_said_in_words() -> None:
    components = [(where, schema) for where, schema in schemas() if where.startswith("/components")]
    assert not [where for where, schema in components if "default" in schema and "const" not in schema]
    described = SCHEMAS["ReceiveMessages"]["properties"]["max_messages"]["description"]
    assert described == "The largest number of messages to receive. Default: `1`."


def test_a_default_is_also_stated_as_a_value() -> None:
    """The client gives an answer of an older server the defaults of the settings that it lacks."""
    members = [member for where, member in schemas() if "Default: `" in member.get("description", "")]
    unstated = [one["description"] for one in members if "x-peeklock-default" not in one]
    assert [text for text in unstated if "{topic}.{subscription}" not in text] == []
    settings = SCHEMAS["QueueSettingsBody"]["properties"]
    stated = {name: settings[name]["x-peeklock-default"] for name in ("max_messages", "retry", "labels", "status")}
    assert stated == {"max_messages": None, "retry": {"kind": "none"}, "labels": {}, "status": "active"}


def test_an_enumeration_of_one_value_is_a_constant() -> None:
    assert not [where for where, schema in schemas() if len(schema.get("enum", "ab")) == 1]
    assert SCHEMAS["CommittedMessage"]["properties"]["outcome"]["const"] == "completed"


def test_a_discriminator_of_a_request_has_its_value_as_default() -> None:
    """So a constructor of a client sets it."""
    for union in ("RetrySettings", "Settlement", "TransactionSettlement"):
        discriminator = SCHEMAS[union]["discriminator"]
        for value, reference in discriminator["mapping"].items():
            member = SCHEMAS[reference.rsplit("/", 1)[1]]["properties"][discriminator["propertyName"]]
            assert member["default"] == member["const"] == value


def test_names_of_values_have_no_prefix_and_no_word_for_a_hyphen() -> None:
    """Only Go needs a prefix, because its constants share one namespace. Its configuration adds one."""
    named = {name: schema for name, schema in SCHEMAS.items() if "x-enum-varnames" in schema}
    assert [*named] == ["ProblemCode"]
    codes = named["ProblemCode"]
    assert codes["x-enum-varnames"] == [code.upper().replace("-", "_") for code in codes["enum"]]
    assert 'enumClassPrefix: "true"' in GO_CONFIGURATION.read_text()


def test_a_body_is_optional_where_clients_mostly_send_none() -> None:
    optional = {
        promise["operationId"]
        for promise in DOCUMENTED_OPERATIONS
        if not promise.get("requestBody", {}).get("required", True)
    }
    assert optional == {
        "abandon_lock",
        "cancel_move",
        "commit_transaction",
        "complete_lock",
        "dead_letter_lock",
        "defer_lock",
        "purge_queue",
        "redrive_dead_letters",
        "release_lock",
        "renew_lock",
        "restore_messages",
        "rollback_transaction",
        "start_move",
        "start_transaction",
    }


def test_unions_are_named_and_have_discriminators() -> None:
    unions = {where for where, schema in schemas() if "oneOf" in schema}
    assert unions == {
        f"/components/schemas/{name}"
        for name in ("RetrySettings", "SendResult", "Settlement", "SettlementResult", "TransactionSettlement")
    }
    for where in unions:
        schema = SCHEMAS[where.rsplit("/", 1)[1]]
        members = [member["$ref"] for member in schema["oneOf"]]
        assert sorted(schema["discriminator"]["mapping"].values()) == sorted(members)
    for where, schema in schemas():
        if "anyOf" in schema:
            assert len(schema["anyOf"]) == 2, where
            assert schema["anyOf"][1] == {"type": "null"}, where


def test_no_pattern_uses_python_syntax() -> None:
    for where, part in walk(DOCUMENT):
        if where.endswith("/pattern"):
            assert "(?" not in part.replace("(?:", ""), where


def test_a_filter_documents_its_fields() -> None:
    descriptions = [text for where, text in walk(DOCUMENT) if where.endswith("/description") and "CEL" in str(text)]
    assert len(descriptions) == 8
    assert len(set(descriptions)) == 1
    unseen = {"body", "body_base64", "lock_token", "receiver_id", "locked_until", "lock_remaining_ms", "delivery"}
    known = {*MessageView.__struct_fields__, "body_bytes"} - unseen
    fields, _, _ = str(descriptions[0]).partition("Times are timestamps")
    assert {*re.findall(r"`(\w+)`", fields)} - {"message"} == known


@each_operation
def test_an_idempotency_key_documents_where_it_is_not_accepted(promise: dict[str, Any]) -> None:
    for parameter in promise.get("parameters", []):
        if parameter["name"] == "Idempotency-Key":
            for word in ("not atomic", "volatile", "filter", "sequence numbers", "receive_and_delete"):
                assert word in parameter["description"]


def test_nothing_is_invented() -> None:
    assert DOCUMENT["info"]["contact"] == {"name": "Peeklock"}
    assert DOCUMENT["info"]["license"]["identifier"] == "Apache-2.0"
    hosts = re.findall(r"https?://([^/\"\s]+)", json.dumps(DOCUMENT))
    # Names that end with .example belong to no one.
    assert [host for host in hosts if not host.endswith(".example")] == ["127.0.0.1:8080"]


@each_operation
def test_few_answers_are_named_and_the_others_have_a_default(promise: dict[str, Any]) -> None:
    problems = [status for status in promise["responses"] if not status.startswith(("2", "3"))]
    assert "default" in problems
    assert {*problems} <= {"404", "409", "410", "412", "504", "default"}


@each_operation
def test_the_default_answer_lists_the_codes_of_its_operation(promise: dict[str, Any]) -> None:
    description = promise["responses"]["default"]["description"]
    listed = {int(status): codes for status, codes in re.findall(r"^- (\d+): (.*)$", description, re.MULTILINE)}
    own = {code: status for status in TITLES for code in codes_of_status(status)}
    expected: dict[int, list[str]] = {}
    for code in promise.get("x-peeklock-problems", ()):
        expected.setdefault(own[code], []).append(f"`{code}`")
    assert listed == {status: ", ".join(codes) for status, codes in expected.items()}


def test_the_code_of_a_problem_is_one_of_a_list_with_a_name() -> None:
    assert SCHEMAS["Problem"]["properties"]["code"]["$ref"] == "#/components/schemas/ProblemCode"
    assert {*SCHEMAS["ProblemCode"]["enum"]} == {code for status in TITLES for code in codes_of_status(status)} | {
        *COMMON_CODES
    }


def test_a_server_without_keys_needs_none() -> None:
    assert DOCUMENT["security"] == [{"ApiKey": []}, {}]


def test_an_sdk_is_not_named_like_the_client() -> None:
    """openapi-python-client adds `-client` to the title."""
    assert DOCUMENT["info"]["title"] == "Peeklock HTTP API"


def test_every_code_belongs_to_an_operation_or_to_all() -> None:
    declared = {code for promise in DOCUMENTED_OPERATIONS for code in promise.get("x-peeklock-problems", ())}
    known = {code for status in TITLES for code in codes_of_status(status)} | {*FRAMEWORK_CODES.values()}
    assert declared | COMMON_CODES == known


@each_operation
def test_the_named_answers_are_those_of_the_codes(promise: dict[str, Any]) -> None:
    statuses = {
        status
        for status in TITLES
        for code in codes_of_status(status)
        if code in promise.get("x-peeklock-problems", ())
    }
    named = {int(status) for status in promise["responses"] if status >= "400" and status != "default"}
    assert named == statuses & NAMED_PROBLEMS


async def test_a_problem_that_the_operation_does_not_declare_is_noticed() -> None:
    for code, is_declared in (("queue-not-found", True), ("topic-not-found", False)):
        problem = {**PROBLEM, "code": code}
        request = httpx.Request("GET", "http://peeklock.test/v1/queues/orders")
        answer = httpx.Response(
            404, content=json.dumps(problem), request=request,
            headers={"X-Request-Id": "1", "Content-Type": "application/problem+json"},
        )  # fmt: skip
        if is_declared:
            await check_conformance(answer)
        else:
            with pytest.raises(AssertionError, match="get_queue does not promise topic-not-found"):
                await check_conformance(answer)


@pytest.mark.parametrize(
    ("method", "path", "status", "body"),
    [
        ("GET", "/livez", 200, {"status": "dead"}),
        ("GET", "/livez", 200, {}),
        ("GET", "/livez", 204, {}),
        ("GET", "/v1/queues/orders/messages/1", 200, {"sequence_number": "1"}),
        ("GET", "/v1/nowhere", 200, {}),
    ],
)
async def test_an_undocumented_answer_is_noticed(method: str, path: str, status: int, body: Any) -> None:
    request = httpx.Request(method, f"http://peeklock.test{path}")
    with pytest.raises(AssertionError):
        await check_conformance(
            httpx.Response(status, json=body, request=request, headers={"X-Request-Id": "1", "ETag": "2"})
        )


@each_operation
def test_an_operation_says_whether_it_needs_a_key_and_with_which_right(promise: dict[str, Any]) -> None:
    right = promise.get("x-peeklock-right")
    sentences = {None: "Needs no API key.", ANY_RIGHT: "Needs an API key with any right."}
    assert (promise.get("security") == []) == (right is None)
    assert sentences.get(right, f"Needs the right `{right}` on ") in promise["description"]


@each_operation
def test_an_answer_names_only_headers_that_it_can_have(promise: dict[str, Any]) -> None:
    named = {(status, name) for status, answer in promise["responses"].items() for name in answer.get("headers", {})}
    assert {status for status, name in named if name == "Location"} <= {"201"}
    assert ("202", "Idempotency-Replayed") not in named


@each_operation
def test_a_header_with_a_text_has_no_format(promise: dict[str, Any]) -> None:
    schemas_of_headers = [one["schema"] for one in promise.get("parameters", ()) if one["in"] == "header"]
    assert [schema for schema in schemas_of_headers if schema.get("type") == "string" and "format" in schema] == []


def test_metrics_are_a_text() -> None:
    answer = DOCUMENT["paths"]["/metrics"]["get"]["responses"]["200"]
    assert [content["schema"] for content in answer["content"].values()] == [{"type": "string"}]
