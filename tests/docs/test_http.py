"""The HTTP guide is true: its examples are answered as it shows, and its tables are those of the code."""

from __future__ import annotations

import json
import re
from collections.abc import Callable

import httpx
import pytest

from app.broker.filters import FIELDS
from app.domain.access import Right
from app.domain.expressions import CALLS
from tests.answers import KINDS, check_answer
from tests.docs.contract import DOCUMENT, ROOT, SCHEMAS, constants, errors, fields, operations, settings
from tests.guides import after_each, blocks, printed, section, table
from tests.service import Service

GUIDE = (ROOT / "docs" / "http.md").read_text()
HEADINGS = re.findall("^## (.*)$", GUIDE, re.MULTILINE)
WITH_EXAMPLES = [heading for heading in HEADINGS if "```sh" in section(GUIDE, heading)]

NO_LIMITS = frozenset(
    f"PEEKLOCK_{name}"
    for name in (
        "PORT", "WORKERS", "DATABASE_CONNECTIONS", "REDIS_TIMEOUT_SECONDS", "SWEEP_INTERVAL_SECONDS",
        "SEAL_INTERVAL_SECONDS",
    )
)  # fmt: skip
"""Settings that are numbers and limit no request."""

IN_OTHER_TABLES = frozenset((
    # The ranges of members and parameters.
    "archive.MOST_TRIMMED", "desk.LONGEST_ATTEMPT_KEY", "message.HIGHEST_PRIORITY", "message.LARGEST_BATCH",
    "message.LARGEST_FILTER", "message.LARGEST_RECEIVE", "message.LONGEST_DESCRIPTION", "message.LONGEST_ID",
    "message.LONGEST_REASON", "message.LONGEST_TEXT", "message.LOWEST_PRIORITY", "queue.LARGEST_MESSAGE",
    "queue.LARGEST_MESSAGE_DEFAULT", "queue.LONGEST_DESCRIPTION", "queue.LONGEST_DUPLICATE_WINDOW", "queue.LONGEST_LOCK",
    "queue.LONGEST_NAME", "queue.LONGEST_RETENTION", "queue.LONGEST_TTL", "queue.MOST_DELIVERIES", "queue.SHORTEST_LOCK",
    "retry.LONGEST_DELAY", "retry.LONGEST_DELAY_SECONDS", "retry.MOST_DELAYS_LISTED", "shapes.LARGEST_INT64",
    # The defaults of settings.
    "outbox.LARGEST_VOLATILE", "weight.LARGEST_ANSWER",
    # docs/metrics.md.
    "figures.KEEP_SECONDS", "metrics.MOST_NAMED",
))  # fmt: skip

INSIDE = frozenset((
    # They bound memory, statements and pauses, and no request is answered differently because of them.
    "access.KEY_BYTES", "catalogue.MOST_REMEMBERED", "connection.LINGER_SECONDS", "digest.CONTENT_DIGEST_BYTES",
    "figures.PATIENCE_SECONDS", "filters.LONGEST_COMPLAINT", "filters.MOST_COMPILED", "in_turn.MOST_LINES",
    "keys.MOST_REMEMBERED", "limited.SPARE_SECONDS", "listening.READY_SECONDS", "outbox.HEAVIEST_BATCH",
    "outbox.LARGEST_BATCH", "outbox.REST_AFTER_FAILURE_SECONDS", "queue.LONGEST_LEAD", "queue.SHORTEST_LEAD",
    "queues.MOST_TAKINGS", "queues.MOST_TRIES", "search.LEAST_COUNTED", "search.LOOK_BYTES", "searches.LARGEST_LOOK",
    "searches.MOST_IDLE", "searches.MOST_NEWS", "searches.REVISIT_SECONDS", "settlement.HIGHEST_GENERATION",
    "settlement.SECRET_BYTES", "settling.FIRST_PAUSE_SECONDS", "settling.MOST_LOOKS",
))  # fmt: skip

FIXED = {
    "Target of a request": "{connection.LARGEST_URL:size}",
    "Target, header fields and trailer fields together": "{connection.LARGEST_HEAD:size}",
    "Header fields of a request": "{connection.MOST_FIELDS}",
    "Body that is slow": "{patience.LEAST_RATE:size} a second, after the first 30 s",
    "Rest of a body that was answered already": "{connection.LARGEST_REST:size} in {connection.REST_SECONDS:g} s",
    "Connection without a request": "{listening.KEEP_ALIVE_SECONDS} s",
    "Answer that the client does not read": "{listening.UNREAD_SECONDS} s",
    "Connections above the limit that may ask for health": "{limited.SPARE}",
    "Memory of an `Idempotency-Key`": "{desk.ATTEMPT_KEPT:hours} h",
    "Memory of a settlement": "at least {settlement.TOMBSTONE_KEEP:hours} h",
    "API key that is presented": "{keys.LONGEST_KEY} characters",
    "`PEEKLOCK_BOOTSTRAP_KEY`": "at least {preflight.SHORTEST_BOOTSTRAP_KEY} characters",
    "Keys that live, of one principal": "{access.LIVE_KEYS_PER_PRINCIPAL}",
    "Properties of a message": "{message.MOST_PROPERTIES} in {message.LARGEST_PROPERTIES:size} of JSON",
    "Properties as a request writes them": "{properties.LARGEST_WRITTEN:size}",
    "Structured CloudEvent without its data": "{cloudevents.LARGEST_REST:size}",
    "Name of a CloudEvents attribute": "{cloudevents.LONGEST_NAME} characters",
    "Operators, brackets and commas of a filter": "{expressions.MOST_SYMBOLS}",
    "Additions of a filter": "{expressions.MOST_ADDITIONS}",
    "What a receive with a filter looks at": "{search.MOST_MESSAGES} messages, {search.MOST_BYTES:size}",
    "Time of a receive with a filter that does not wait": "{search.LEAST_SECONDS:g} s",
    "What a page with a filter looks at": (
        "{browse.MOST_BATCHES} statements, {browse.MOST_BYTES:size}, {browse.MOST_SECONDS:g} s"
    ),
    "Volatile messages that wait to be stored": "{outbox.MOST_KEPT}",
    "Weight of a message besides body and properties": "{weight.ROW_BYTES:size}",
    "Bodies and answers that are not counted in flight": "{bodies.UNCOUNTED:size}",
    "`detail` of a problem": "{problems.LONGEST_DETAIL} characters",
    "Time of the store to answer `/readyz`": "{health.STORE_PATIENCE_SECONDS:g} s",
    "Use of a revoked key in another process": "{keys.KEEP_SECONDS:g} s",
    "Use of old settings of a queue in another process": "{catalogue.KEEP_SECONDS:g} s",
}
"""Each fixed limit as the guide words it, with the constants that it comes from."""

PLACE = re.compile(r"\{([a-z_]+\.[A-Z_]+)(?::([a-z]+))?\}")


@pytest.mark.parametrize("heading", WITH_EXAMPLES)
def test_the_examples_are_answered_as_shown(serve: Callable[..., Service], heading: str) -> None:
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
        wanted = {"kind": "none"} if name == "retry" else members[name].get("default")
        assert (text if text == "active" else json.loads(text)) == wanted, name


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
    assert re.findall(r"`(\w+)`", callable_) == sorted(CALLS)


def test_the_filters_match_what_the_guide_says(serve: Callable[..., Service]) -> None:
    service = serve()
    printed(service, [next(block for kind, block in blocks(GUIDE, "Filters") if kind == "sh")])
    with httpx.Client(base_url=service.url) as client:
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
        "RetrySettings": "kind",
    }
    problems = [one["content"] for one in DOCUMENT["components"]["responses"].values()]
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
