"""The HTTP guide is true: its examples are answered as it shows, and its tables are those of the code."""

from __future__ import annotations

import json
import re
from collections.abc import Callable

import httpx
import pytest

from app.broker.filters import FIELDS
from app.domain.access import Right
from app.domain.filter_expression import ALLOWED_FUNCTIONS
from tests.answers import KINDS, check_answer
from tests.docs.contract import DOCUMENT, ROOT, SCHEMAS, constants, errors, fields, operations, settings
from tests.guides import after_each, blocks, printed, section, table
from tests.peeklock_process import PeeklockProcess

GUIDE = (ROOT / "docs" / "http.md").read_text()
DEFAULT = re.compile(r"Default: `(.*)`\.")
HEADINGS = re.findall("^## (.*)$", GUIDE, re.MULTILINE)
WITH_EXAMPLES = [heading for heading in HEADINGS if "```sh" in section(GUIDE, heading)]

NO_LIMITS = frozenset(
    f"PEEKLOCK_{name}"
    for name in (
        "PORT", "WORKERS", "DATABASE_CONNECTIONS", "REDIS_TIMEOUT_SECONDS", "SWEEP_INTERVAL_SECONDS",
        "SEAL_INTERVAL_SECONDS", "STATE_RETENTION_SECONDS",
    )
)  # fmt: skip
"""Settings that are numbers and limit no request."""

IN_OTHER_TABLES = frozenset((
    # The ranges of members and parameters.
    "offer.MIN_WAIT_SECONDS", "offer.MAX_WAIT_SECONDS", "sending.DEFAULT_WAIT_SECONDS",
    "archive.MAX_TRIMMED_BATCHES", "states.MAX_PAGE_SIZE", "request.MAX_IDEMPOTENCY_KEY_LENGTH", "message.MAX_PRIORITY", "message.MAX_BATCH_COUNT",
    "message.MAX_FILTER_BYTES", "message.MAX_RECEIVE_COUNT", "message.MAX_DESCRIPTION_LENGTH", "message.MAX_ID_LENGTH",
    "message.MAX_REASON_LENGTH", "message.MAX_TEXT_LENGTH", "message.MIN_PRIORITY", "queue.MAX_MESSAGE_BYTES",
    "queue.DEFAULT_MAX_MESSAGE_BYTES", "queue.MAX_QUEUE_DESCRIPTION_LENGTH", "queue.MAX_DUPLICATE_WINDOW", "queue.MAX_GROUP_IN_FLIGHT", "queue.MAX_LOCK_DURATION",
    "queue.MAX_NAME_LENGTH", "queue.MAX_ARCHIVE_RETENTION", "queue.MAX_TTL", "queue.MAX_DELIVERY_LIMIT", "queue.MIN_LOCK_DURATION",
    "retry.MAX_DELAY", "retry.MAX_DELAY_SECONDS", "transaction.MAX_TIMEOUT", "transaction.MIN_TIMEOUT", "retry.MAX_LISTED_DELAYS", "field_types.MAX_INT64", "field_types.MIN_INT64",
    "execution.MAX_PUBLISHES", "execution.MAX_STATES", "topics.MAX_TESTED",
    # The defaults of settings.
    "queue.DEFAULT_ARCHIVE_RETENTION", "state.DEFAULT_RETENTION", "volatile_buffer.MAX_BYTES", "weight.MAX_RESPONSE_BYTES",
    # docs/metrics.md.
    "queue_statistics.CACHE_SECONDS", "metrics.MAX_NAMED_QUEUES", "message_counters.MAX_COUNTED_QUEUES",
))  # fmt: skip

INSIDE = frozenset((
    # They bound memory, statements and pauses, and no request is answered differently because of them.
    "shared_body.MIN_SHARED_BYTES", "access.KEY_BYTES", "browse.BATCH_SIZE", "decoding.ENCODING_BLOCK_BYTES", "json_depth.BLOCK_BYTES", "decoding.TAIL_BYTES", "edit.MAX_TRIES",
    "filters.BATCH_SIZE", "queue_statistics.BATCH_SIZE", "revoke_locks.BATCH_SIZE",
    "restore.MAX_STEP_BYTES", "search_state.MAX_TIME_SHARE", "sequential_reads.MIN_READ_BYTES", "queue_cache.MAX_ENTRIES", "connection.LINGER_SECONDS", "digest.CONTENT_DIGEST_BYTES",
    "queue_statistics.TIMEOUT_SECONDS", "filters.MAX_ERROR_LENGTH", "filters.MAX_COMPILED", "sequential_reads.MAX_LINE_ENDS",
    "keys.MAX_ENTRIES", "connection_limit.SPARE_SECONDS", "listening.READY_SECONDS", "volatile_buffer.BATCH_BYTES",
    "volatile_buffer.BATCH_SIZE", "volatile_buffer.RETRY_SECONDS", "queue.MAX_LEAD_TIME", "queue.MIN_LEAD_TIME",
    "revoke_locks.MAX_REVOCATIONS", "queues.MAX_TRIES", "range_pages.MAX_STATEMENTS", "receive_filtered.MIN_COUNTED_MESSAGES", "receive_filtered.BATCH_BYTES", "search_state.MAX_BATCH_SIZE",
    "search_state.MAX_IDLE_SEARCHES", "search_state.MAX_MISSED", "search_state.RESCAN_SECONDS", "settlement.MAX_GENERATION",
    "subscription_filter.MAX_COMPILED", "topic_cache.MAX_ENTRIES", "topic_cache.MAX_CACHED_BYTES", "topic_cache.MAX_LOADS", "filters.MAX_CONTEXTS", "schemas.MAX_INT32", "suggestions.MAX_COMPARED_LENGTH", "cors.PREFLIGHT_SECONDS", "decode_errors.MAX_QUOTED", "decoding.MAX_NULL_BYTES", "delivered_ids.MAX_DELIVERIES", "delivered_ids.MAX_QUEUES", "publish.MAX_TRIES", "settlement.SECRET_BYTES", "queue_explanation.MAX_DUE_TIMES_READ", "settle.FIRST_PAUSE_SECONDS", "settle.MAX_TRIES",
    # They are the largest that other limits make possible.
    "states.MAX_STATE_BYTES", "history.MAX_HISTORY_PAGE_BYTES", "topics.MAX_SUBSCRIPTIONS_BYTES",
    "topics.MAX_TOPIC_BYTES", "queues.MAX_QUEUE_BYTES", "transactions.MAX_MEMBER_BYTES",
    # "History" in docs/http.md.
    "queue.MIN_HISTORY_RETENTION",
    "offer.ANSWER_RETENTION",
    # docs/console.md.
    "session.SESSION_BYTES", "sessions.CACHE_SECONDS", "sessions.MAX_ENTRIES", "attention.MIN_GROWTH",
    "attention.MIN_GROWTH_RATIO", "raw_send.MAX_QUOTED_NAME",
))  # fmt: skip

FIXED = {
    "Target of a request": "{request_errors.MAX_URL_BYTES:size}",
    "Target, header fields and trailer fields together": "{request_errors.MAX_HEAD_BYTES:size}",
    "Header fields of a request": "{request_errors.MAX_FIELDS}",
    "Body that is slow": "{read_timeout.MIN_BYTES_PER_SECOND:size} a second, after the first 30 s",
    "Rest of a body that was answered already": "{connection.MAX_DISCARD_BYTES:size} in {connection.DISCARD_SECONDS:g} s",
    "Connection without a request": "{listening.KEEP_ALIVE_SECONDS} s",
    "Answer that the client does not read": "{listening.UNACKNOWLEDGED_SECONDS} s",
    "Connections above the limit that may ask for health": "{connection_limit.SPARE_CONNECTIONS}",
    "Memory of an `Idempotency-Key`": "{request.ATTEMPT_RETENTION:hours} h",
    "Memory of a settlement": "at least {settlement.TOMBSTONE_RETENTION:hours} h",
    "Members of a transaction": "{transaction.MAX_MEMBERS} in {transaction.MAX_TRANSACTION_BYTES:size}",
    "Open transactions in a database": "{transaction.MAX_OPEN_TRANSACTIONS}",
    "Memory of a transaction that has ended": "{transaction.OUTCOME_RETENTION:hours} h",
    "API key that is presented": "{keys.MAX_SECRET_LENGTH} characters",
    "`PEEKLOCK_BOOTSTRAP_KEY`": "at least {preflight.MIN_BOOTSTRAP_KEY_LENGTH} characters",
    "Live keys of one principal": "{access.MAX_LIVE_KEYS_PER_PRINCIPAL}",
    "`reply` of a complete": "{offer.MAX_REPLY_BYTES:size}",
    "Properties of a message": "{message.MAX_PROPERTIES} in {message.MAX_PROPERTIES_BYTES:size} of JSON",
    "Headers of a message in a raw receive": "{raw_receive.MAX_MESSAGE_HEADERS_BYTES:size}",
    "Levels of arrays and objects in the JSON of a request": "{json_depth.MAX_JSON_DEPTH}",
    "Properties as a request writes them": "{properties.MAX_RAW_PROPERTIES_BYTES:size}",
    "Structured CloudEvent without its data": "{cloudevents.MAX_BYTES_WITHOUT_DATA:size}",
    "Name of a CloudEvents attribute": "{cloudevents.MAX_ATTRIBUTE_NAME_LENGTH} characters",
    "Operators, brackets and commas of a filter": "{filter_expression.MAX_SYMBOLS}",
    "Additions of a filter": "{filter_expression.MAX_ADDITIONS}",
    "Topics of a server": "{topic.MAX_TOPICS}",
    "Subscriptions of a topic": "{topic.MAX_SUBSCRIPTIONS}",
    "Properties that a subscription sets": "{topic.MAX_SET_PROPERTIES_BYTES:size} of JSON",
    "Names of properties that a subscription removes": "{topic.MAX_REMOVED_BYTES:size}",
    "All copies of one publish": "{topic.MAX_PUBLISHED_BYTES:size}",
    "Copies of publishes that are not counted in flight": "{publish.UNCOUNTED_BYTES:size}",
    "Filters that one publish evaluates, for each of its messages": (
        "{topic.MAX_EVALUATIONS}, with {topic.MAX_EVALUATED_BYTES:size} of properties"
    ),
    "Queues to which a message is forwarded": "{queue.MAX_FORWARDING_HOPS}",
    "Value of a state": "{state.MAX_VALUE_BYTES:size}",
    "Metadata of a version": "{state.MAX_METADATA_BYTES:size}",
    "Messages that a plan shows": "{plan.MAX_SAMPLE_SIZE}",
    "Messages that a receive with a filter reads": "{receive_filtered.MAX_MESSAGES} messages, {receive_filtered.MAX_BYTES:size}",
    "Time of a receive with a filter that does not wait": "{receive_filtered.MIN_SECONDS:g} s",
    "Messages that a page with a filter reads": (
        "{browse.MAX_BATCHES} statements, {browse.MAX_BYTES:size}, {browse.MAX_SECONDS:g} s"
    ),
    "Messages ahead that an explanation counts": "{explanation.MAX_MESSAGES_AHEAD}",
    "Locks that the explanation of a queue reads": "{queue_explanation.MAX_LOCKS_READ}",
    "Volatile messages that wait to be stored": "{volatile_buffer.MAX_MESSAGES}",
    "Weight of a message besides body and properties": "{weight.MESSAGE_OVERHEAD_BYTES:size}",
    "Bodies and answers that are not counted in flight": "{request_body.UNCOUNTED_BYTES:size}",
    "`detail` of a problem": "{problems.MAX_DETAIL_LENGTH} characters",
    "Time of the store to answer `/readyz`": "{health.STORE_TIMEOUT_SECONDS:g} s",
    "Use of a revoked key in another process": "{keys.CACHE_SECONDS:g} s",
    "Use of old settings of a queue in another process": "{queue_cache.CACHE_SECONDS:g} s",
    "Use of old settings of the database by a server that requires durability": "{durability.CHECK_SECONDS:g} s",
}
"""Each fixed limit as the guide words it, with the constants that it comes from."""

PLACE = re.compile(r"\{([a-z_]+\.[A-Z_]+)(?::([a-z]+))?\}")


@pytest.mark.parametrize("heading", WITH_EXAMPLES)
def test_the_examples_are_answered_as_shown(serve: Callable[..., PeeklockProcess], heading: str) -> None:
    shown_here = blocks(GUIDE, heading, KINDS)
    said = printed(serve(), [block for kind, block in shown_here if kind == "sh"])
    for (kind, shown), answer in zip(after_each("sh", shown_here), said, strict=True):
        if kind in ("", "sh"):
            assert not answer.strip()
        else:
            check_answer(kind, answer, shown)


def test_the_calls_are_those_of_the_document() -> None:
    assert sorted(tuple(row[:4]) for row in table(GUIDE, "Operations", "call")) == sorted(operations())


def test_the_rights_are_those_of_the_code() -> None:
    assert {row[0] for row in table(GUIDE, "Access", "right")} == {f"`{right}`" for right in Right}


def test_the_settings_of_a_queue_have_these_defaults() -> None:
    members = SCHEMAS["QueueSettingsBody"]["properties"]
    shown = {row[0].strip("`"): row[1].strip("`") for row in table(GUIDE, "Queues", "setting")}
    assert shown.keys() == members.keys()
    for name, text in shown.items():
        found = DEFAULT.search(members[name].get("description", ""))
        wanted = {"kind": "none"} if name == "retry" else found and json.loads(found[1])
        assert (text if text in ("active", "automatic") else json.loads(text)) == wanted, name


def test_a_receive_has_these_members() -> None:
    shown = {row[0].strip("`") for row in table(GUIDE, "Receive", "member of the request")}
    assert shown == SCHEMAS["ReceiveMessages"]["properties"].keys()


def test_each_code_is_listed() -> None:
    rows = table(GUIDE, "Errors", "code")
    assert {row[0].strip("`"): (int(row[1]), row[2] == "yes") for row in rows} == errors()
    assert len(rows) == len(errors())


def test_each_setting_that_limits_is_listed() -> None:
    shown = {row[0].strip("`"): (row[1], row[2]) for row in table(GUIDE, "Limits", "setting")}
    assert shown == {name: limit for name, limit in settings().items() if name not in NO_LIMITS}


def test_the_range_of_each_member_is_listed() -> None:
    shown = {(row[0].strip("`"), row[2]): row[1] for row in table(GUIDE, "Limits", "field")}
    assert shown == fields()


def test_each_fixed_limit_is_listed() -> None:
    limits = constants()
    shown = {row[0]: row[1] for row in table(GUIDE, "Limits", "what")}
    assert shown == {what: PLACE.sub(lambda found: _limit(limits, found), text) for what, text in FIXED.items()}


def test_each_limit_in_the_code_is_known_here() -> None:
    listed = {found[1] for text in FIXED.values() for found in PLACE.finditer(text)}
    assert listed | IN_OTHER_TABLES | INSIDE == constants().keys()


def test_the_names_that_a_filter_knows_are_listed() -> None:
    text = " ".join(section(GUIDE, "Filters").split())
    known = text.partition("Its fields are ")[2].partition(". ")[0]
    callable_ = text.partition("It can call ")[2].partition(". ")[0]
    assert re.findall(r"`(\w+)`", known) == list(FIELDS)
    assert re.findall(r"`(\w+)`", callable_) == sorted(ALLOWED_FUNCTIONS)


def test_the_filters_match_what_the_guide_says(serve: Callable[..., PeeklockProcess]) -> None:
    service = serve()
    printed(service, [next(block for kind, block in blocks(GUIDE, "Filters") if kind == "sh")])
    with httpx.Client(base_url=service.url, timeout=60) as client:
        for source, matches in table(GUIDE, "Filters", "filter"):
            asked = {"filter": source.strip("`").replace("\\|", "|")}
            items = client.get("/v1/queues/orders/messages", params=asked).json()["items"]
            assert ", ".join(item["message_id"] for item in items) == matches, source


def test_the_document_is_as_makers_of_clients_are_told() -> None:
    members = {name: schema["discriminator"]["propertyName"] for name, schema in SCHEMAS.items() if "oneOf" in schema}
    assert members == {
        "SendResult": "result",
        "SettlementResult": "result",
        "Settlement": "action",
        "TransactionSettlement": "action",
        "RetrySettings": "kind",
    }
    problems = [response["content"] for response in DOCUMENT["components"]["responses"].values()]
    problem = {"application/problem+json": {"schema": {"$ref": "#/components/schemas/Problem"}}}
    assert problems == [problem] * len(problems)


def _limit(limits: dict[str, float], found: re.Match[str]) -> str:
    value = limits[found[1]]
    if found[2] == "size":
        return _size(value)
    if found[2] == "hours":
        return f"{value / 3_600_000_000:g}"
    return format(value, found[2] or "")


def _size(value: float) -> str:
    mebibytes, rest = divmod(int(value), 1 << 20)
    return f"{int(value) >> 10} KiB" if rest else f"{mebibytes} MiB"
