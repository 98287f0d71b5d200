"""The pages of docs/reference are as the code says, and name everything that it has."""

from __future__ import annotations

import re

import pytest

from app.cli.lazy_commands import COMMANDS
from app.settings import Settings
from developing.processes import Refusal
from developing.reference import words
from developing.reference.__main__ import DIRECTORY, PAGES
from developing.reference.contract import SCHEMAS, constants, errors, operations
from developing.reference.limits import named_constants
from developing.reference.markdown import table
from developing.reference.schemas import kind_of
from tests.guides import table as rows_of

IN_OTHER_TABLES = frozenset((
    # The ranges of members and parameters.
    "synchronous_send.MIN_WAIT_SECONDS", "synchronous_send.MAX_WAIT_SECONDS", "sending.DEFAULT_WAIT_SECONDS",
    "archive.MAX_TRIMMED_BATCHES", "states.MAX_PAGE_SIZE", "request.MAX_IDEMPOTENCY_KEY_LENGTH", "message.MAX_PRIORITY", "message.MAX_BATCH_COUNT",
    "message.MAX_FILTER_BYTES", "message.MAX_RECEIVE_COUNT", "message.MAX_DESCRIPTION_LENGTH", "message.MAX_ID_LENGTH",
    "message.MAX_REASON_LENGTH", "message.MAX_TEXT_LENGTH", "message.MIN_PRIORITY", "queue.MAX_MESSAGE_BYTES",
    "queue.DEFAULT_MAX_MESSAGE_BYTES", "queue.MAX_QUEUE_DESCRIPTION_LENGTH", "queue.MAX_DUPLICATE_WINDOW", "queue.MAX_GROUP_IN_FLIGHT", "queue.MAX_LOCK_DURATION",
    "queue.MAX_NAME_LENGTH", "queue.MAX_ARCHIVE_RETENTION", "queue.MAX_TTL", "queue.MAX_DELIVERY_LIMIT", "queue.MIN_LOCK_DURATION",
    "retry.MAX_DELAY", "retry.MAX_DELAY_SECONDS", "transaction.MAX_TIMEOUT", "transaction.MIN_TIMEOUT", "retry.MAX_LISTED_DELAYS", "field_types.MAX_INT64", "field_types.MIN_INT64",
    "execution.MAX_PUBLISHES", "execution.MAX_STATES", "topics.MAX_TESTED",
    # The defaults of settings.
    "queue.DEFAULT_ARCHIVE_RETENTION", "state.DEFAULT_RETENTION", "volatile_buffer.MAX_BYTES", "weight.MAX_RESPONSE_BYTES",
    # docs/reference/metrics.md.
    "queue_statistics.CACHE_SECONDS", "metrics.MAX_NAMED_QUEUES", "message_counters.MAX_COUNTED_QUEUES",
))  # fmt: skip

INSIDE = frozenset((
    # They bound memory, statements and pauses, and no request is answered differently because of them.
    "shared_body.MIN_SHARED_BYTES", "access.KEY_BYTES", "browse.BATCH_SIZE", "decoding.ENCODING_BLOCK_BYTES", "json_depth.BLOCK_BYTES", "decoding.TAIL_BYTES", "edit.MAX_TRIES",
    "filters.BATCH_SIZE", "queue_statistics.BATCH_SIZE", "revoke_locks.BATCH_SIZE",
    "restore.MAX_STEP_BYTES", "search_state.MAX_TIME_SHARE", "sequential_reads.MIN_READ_BYTES", "queue_cache.MAX_ENTRIES", "buffered_transport.MAX_JOINED_BYTES", "connection.LINGER_SECONDS", "digest.CONTENT_DIGEST_BYTES",
    "queue_statistics.TIMEOUT_SECONDS", "filters.MAX_ERROR_LENGTH", "filters.MAX_COMPILED", "sequential_reads.MAX_LINE_ENDS", "sequential_reads.MAX_CHUNKS_PER_TURN",
    "live_keys.MAX_ENTRIES", "connection_limit.SPARE_SECONDS", "listening.READY_SECONDS", "volatile_buffer.BATCH_BYTES",
    "volatile_buffer.BATCH_SIZE", "volatile_buffer.RETRY_SECONDS", "queue.MAX_LEAD_TIME", "queue.MIN_LEAD_TIME",
    "revoke_locks.MAX_REVOCATIONS", "queues.MAX_TRIES", "range_pages.MAX_STATEMENTS", "receive_filtered.MIN_COUNTED_MESSAGES", "receive_filtered.BATCH_BYTES", "search_state.MAX_BATCH_SIZE",
    "search_state.MAX_IDLE_SEARCHES", "search_state.MAX_MISSED", "search_state.RESCAN_SECONDS", "settlement.MAX_GENERATION",
    "subscription_filter.MAX_COMPILED", "topic_cache.MAX_ENTRIES", "topic_cache.MAX_CACHED_BYTES", "topic_cache.MAX_LOADS", "filters.MAX_CONTEXTS", "schemas.MAX_INT32", "suggestions.MAX_COMPARED_LENGTH", "cors.PREFLIGHT_SECONDS", "decode_errors.MAX_QUOTED", "decoding.MAX_NULL_BYTES", "delivered_ids.MAX_DELIVERIES", "delivered_ids.MAX_QUEUES", "publish.MAX_TRIES", "settlement.SECRET_BYTES", "queue_explanation.MAX_DUE_TIMES_READ", "settle.FIRST_PAUSE_SECONDS", "settle.MAX_TRIES",
    # docs/guides/proxy.md.
    "public_address.MAX_KNOWN_CLIENTS", "public_address.MAX_ROOT_PATH_LENGTH", "pages.MAX_ROOT_PATHS",
    # They are the largest that other limits make possible.
    "states.MAX_STATE_BYTES", "history.MAX_HISTORY_PAGE_BYTES", "topics.MAX_SUBSCRIPTIONS_BYTES",
    "topics.MAX_TOPIC_BYTES", "queues.MAX_QUEUE_BYTES", "transactions.MAX_MEMBER_BYTES",
    # "History" in docs/http.md.
    "queue.MIN_HISTORY_RETENTION",
    "synchronous_send.ANSWER_RETENTION",
    # docs/console.md.
    "operation_handler.SLOW_BODY_SECONDS",
    "session.SESSION_BYTES", "sessions.CACHE_SECONDS", "attention.MIN_GROWTH",
    "attention.MIN_GROWTH_RATIO", "history.MAX_COUNTED_EVENTS", "raw_send.MAX_QUOTED_NAME",
    "server_directory.LISTED_SECONDS", "server_directory.MAX_COUNTS", "server_directory.MAX_WINDOWS",
    "server_directory.WINDOW_SECONDS",
))  # fmt: skip


def text(page: str) -> str:
    return (DIRECTORY / f"{page}.md").read_text()


@pytest.mark.parametrize("page", PAGES)
def test_a_page_is_as_the_code_says(page: str) -> None:
    assert text(page) == PAGES[page]()


def test_every_page_is_written_from_the_code() -> None:
    assert {file.stem for file in DIRECTORY.iterdir()} == PAGES.keys()


def test_every_operation_has_a_section() -> None:
    rows = rows_of(text("http-api"), "All operations", "call")
    listed = {row[0].strip("`"): row[1].split("`")[1] for row in rows}
    assert listed == {call.strip("`"): name.strip("`") for call, name, *_ in operations()}
    assert sorted(listed.values()) == sorted(re.findall(r"^### (\w+)$", text("http-api"), re.MULTILINE))


def test_every_type_has_a_section() -> None:
    assert sorted(re.findall(r"^## (\w+)$", text("http-types"), re.MULTILINE)) == sorted(SCHEMAS)


def test_every_problem_has_a_meaning_and_an_action() -> None:
    found: dict[str, tuple[int, bool]] = {}
    for section in text("problems").split("\n## ")[1:]:
        rows = re.findall(r"^\| `([\w-]+)` \| (yes|no) \| \S.*\. \| \S.*\. \|$", section, re.MULTILINE)
        found |= {code: (int(section[:3]), retryable == "yes") for code, retryable in rows}
    assert found == errors()


def test_every_setting_has_a_row() -> None:
    found = re.findall(r"^\| `PEEKLOCK_(\w+)` \| (\w+) \|.* \| \S.*\. \|$", text("settings"), re.MULTILINE)
    assert {name.lower() for name, _ in found} == Settings.model_fields.keys()
    assert {kind for _, kind in found} == {"text", "integer", "number", "boolean", "word", "secret", "path", "URL"}


def test_every_command_has_a_section() -> None:
    found = re.findall(r"^## peeklock ([\w-]+)", text("command-line"), re.MULTILINE)
    assert set(found) == COMMANDS.keys()


def test_each_limit_in_the_code_is_known_here() -> None:
    assert named_constants() | IN_OTHER_TABLES | INSIDE == constants().keys()


def test_words_are_those_of_the_names_in_the_code() -> None:
    said = {"names": {"known": "x", "stale": "y"}}
    with pytest.raises(Refusal, match="has words for stale"):
        words.of(said, "names", ["known"])
    with pytest.raises(Refusal, match="has no words for new"):
        words.of(said, "names", ["known", "new", "stale"])


def test_a_bar_in_a_cell_is_escaped() -> None:
    assert table(("a", "b"), [("x|y", "")]) == "| a | b |\n|---|---|\n| x\\|y | |"
    assert table(("a",), []) == ""


@pytest.mark.parametrize(
    ("schema", "kind"),
    [
        ({"anyOf": [{"type": "integer", "minimum": 1}, {"type": "null"}]}, "integer (from 1) or null"),
        ({"type": "array", "items": {"type": "string"}, "maxItems": 3}, "array of string (at most 3 entries)"),
        ({"enum": ["a", "b"], "type": "string"}, "`a` or `b`"),
        ({"$ref": "#/components/schemas/Problem"}, "[Problem](http-types.md#problem)"),
        ({}, "any JSON value"),
    ],
)
def test_a_schema_in_words(schema: dict[str, object], kind: str) -> None:
    assert kind_of(schema) == kind
