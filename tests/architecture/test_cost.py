"""What reads requests takes time in proportion to their size.

Four times the input is at most eight times the work: proportional work is four times, quadratic work sixteen times, so
that a load on the machine may double what is measured of either.

Every compiled pattern of the service stands in a table here, with inputs made to cost it most. So do the scans that
are written by hand. The work is the CPU time of this thread, and the least of several runs.
"""

from __future__ import annotations

import ast
import gc
import importlib
import json
import pkgutil
import re
import time
import tracemalloc
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from msgspec import inspect

import app
from app.api.endpoints.cloudevents import event_message
from app.api.endpoints.messages import browse_messages
from app.api.endpoints.raw_send import header_fields, idempotency_payload
from app.api.endpoints.routes import OPERATIONS
from app.broker.filtering.filters import CelFilter
from app.domain.access import ANONYMOUS, Grant, Right
from app.domain.filter_body import decode_object
from app.domain.json_depth import is_too_deep
from app.domain.message import MAX_FILTER_BYTES, Envelope, MessageMetadata, MessageState
from app.domain.refusals import Refusal
from app.domain.settlement import LockToken
from app.http.asgi import Event
from app.http.authorize import Authorization
from app.http.decoding import body_decoder, is_json
from app.http.local_access import LOCAL_ADMIN, LocalAccessPolicy
from app.http.query import query_decoder
from app.http.request import Request
from app.http.request_headers import RequestHeaders
from app.sqs.canonical_request import canonical_headers
from app.sqs.query_protocol.answers import SQS
from app.sqs.query_protocol.form import read_form
from app.sqs.query_protocol.parameters import json_of
from app.sqs.shapes.messages import ReceivedMessage, ReceivedMessages, SendMessageBatch
from app.store.mysql.templates import literal
from app.wire.decode_errors import pointer_and_detail
from app.wire.media_types import is_json_media_type
from app.wire.sending import SendMessage
from app.wire.text_bodies import bytes_of_text, text_of
from app.wire.values import base64_bytes, pointer_segment
from tests.api.api_server import ApiServer, open_api_server, problem

LARGER = 4
FACTOR = 8
MEASURABLE_SECONDS = 0.001
"""The clock of a thread measures this much work well."""
MAX_SIZE = 1 << 19
FEWEST_ROUNDS = 3
MAX_ROUNDS = 12

Maker = Callable[[int], Any]


def seconds(work: Callable[[Any], object], given: Any) -> float:
    """The CPU time that this work took."""
    began = time.thread_time()
    work(given)
    return time.thread_time() - began


def cost_growth(work: Callable[[Any], object], make: Maker) -> float:
    """How many times more work a larger input is, at the best of three sizes: where caches end, it may look like more."""
    gc.disable()
    try:
        size = 64
        while seconds(work, make(size)) < MEASURABLE_SECONDS:
            if size == MAX_SIZE:
                return 0.0  # half a million characters cost less than can be measured
            size *= 2
        least = float("inf")
        for base in (size, 2 * size, 4 * size):
            least = min(least, ratio(work, make(base), make(LARGER * base)))
            if least <= FACTOR:
                break
        return least
    finally:
        gc.enable()


def ratio(work: Callable[[Any], object], one: Any, other: Any) -> float:
    """How many times more work the other is. Another load on the machine only ever adds, so the least of each counts.

    Both are measured in turn, so that a load that lasts for a while falls on both.
    """
    least_of_one = least_of_other = float("inf")
    for rounds in range(1, MAX_ROUNDS + 1):
        least_of_one = min(least_of_one, seconds(work, one))
        least_of_other = min(least_of_other, seconds(work, other))
        if rounds >= FEWEST_ROUNDS and least_of_other / least_of_one <= FACTOR:
            break
    return least_of_other / least_of_one


@pytest.mark.nightly
def test_the_measure_tells_a_quadratic_pattern_from_a_linear_one() -> None:
    assert cost_growth(re.compile("(?:a)*(?:a)*b").fullmatch, "a".__mul__) > FACTOR
    assert cost_growth(re.compile("[ab]*c").fullmatch, "a".__mul__) <= FACTOR


# ---- compiled patterns -----------------------------------------------------------------------------------------------

SLASHES = "\\"
DATE = "2026-01-01T00:00:00"
PATTERNS: dict[str, tuple[str, list[Maker]]] = {
    "app.api.endpoints.cloudevents.ATTRIBUTE_NAME": ("fullmatch", [lambda n: "a" * n + "-"]),
    "app.api.endpoints.cloudevents.FORBIDDEN_CHARACTERS": ("search", [lambda n: "a" * n, lambda n: "\ud7ff" * n]),
    "app.api.endpoints.cloudevents.URI_REFERENCE": (
        "fullmatch",
        [
            lambda n: "a" * n + "<",
            lambda n: "//" + "a" * n + "<",
            lambda n: "x://" + "[" * n + "<",
            lambda n: "//" + "%41" * n + "<",
            lambda n: "/" * n + "<",
            lambda n: "//" + "/a" * n + "<",
            lambda n: "a:" * n + "<",
            lambda n: "?" * n + "<",
            lambda n: "#" + "?" * n + "#",
            lambda n: "//a" * n + "?" + "/?" * n + "#" + "/?" * n + "<",
        ],
    ),
    "app.api.endpoints.cloudevents.RFC3339_TIME": ("fullmatch", [lambda n: f"{DATE}." + "0" * n, lambda n: "0" * n]),
    "app.http.decoding.INTEGER": ("fullmatch", [lambda n: "1" * n, lambda n: "-" + "1" * n + "x"]),
    "app.http.decoding.LONE_SURROGATE": (
        "search",
        [
            lambda n: (SLASHES * n).encode(),
            lambda n: (SLASHES * (2 * n) + "u").encode(),
            lambda n: b"\\ud800\\udc00" * n,
            lambda n: b"\\\\u" * n,
            lambda n: b"\\ud8" * n,
        ],
    ),
    "app.http.public_address.FORWARDED_HOST": (
        "fullmatch",
        [lambda n: "a" * n, lambda n: "a." * n + ":", lambda n: "[" + ":" * n, lambda n: "a:" + "1" * n],
    ),
    "app.http.request.PREFER_WAIT": (
        "search",
        [
            lambda n: "wait=" + "1" * n + "x",
            lambda n: "wait" + " " * n,
            lambda n: "wait=" + " " * n + '"',
            lambda n: " " * n + "wait",
            lambda n: "wait=1" + " " * n + "x",
            lambda n: 'wait="' + "1" * n,
            lambda n: ",wait= " * n,
            lambda n: ",wait=1 " * n + "x",
        ],
    ),
    "app.http.request.ENTITY_TAG": (
        "findall",
        [lambda n: '"' + "a" * n, lambda n: '"' * n, lambda n: '" ' * n, lambda n: 'W/"a",' * n],
    ),
    "app.http.request.TRACEPARENT": ("fullmatch", [lambda n: "0" * n, lambda n: "00-" * n]),
    "app.http.request_id.REQUEST_ID": ("fullmatch", [lambda n: b"a" * n]),
    "app.console.bodies.CONTROLS": ("search", [lambda n: "a" * n]),
    "app.console.bodies.SPACES": ("findall", [lambda n: " " * n, lambda n: " a" * n]),
    "app.console.durations.PART": (
        "match",
        [
            lambda n: " " * n,
            lambda n: "1" * n,
            lambda n: "1." + "1" * n,
            lambda n: "1 " + "a" * n,
            lambda n: "1" + " " * n,
        ],
    ),
    "app.console.formats.CODE": ("findall", [lambda n: "`" * n, lambda n: "`" + "a" * n]),
    "app.console.formats.WIRE_TIME": (
        "findall",
        [lambda n: "2" * n, lambda n: "2031-01-02T03:04:05." * n, lambda n: "2031-" * n],
    ),
    "app.broker.filtering.filters._LIBRARY_ERROR": (
        "findall",
        [lambda n: "ERROR: <input>:" + "1" * n, lambda n: "ERROR: <input>:1:" * n, lambda n: "\nERROR: <input>:1" * n],
    ),
    "app.console.property_rows.CONTROLS": ("search", [lambda n: "a" * n]),
    "app.console.property_rows.JSON_NUMBER": (
        "fullmatch",
        [lambda n: "1" * n + "!", lambda n: "1." + "0" * n + "!", lambda n: "1e" + "0" * n + "!"],
    ),
    "app.console.sizes.SIZE": (
        "fullmatch",
        [lambda n: "1" * n, lambda n: "1" + ",000" * n, lambda n: "1" + " " * n + "!", lambda n: "1" + "a" * n + "!"],
    ),
    "app.console.snippets.HOST": ("fullmatch", [lambda n: "a" * n + "/", lambda n: ":" * n]),
    "app.console.trail_filter.TRACE_ID": ("fullmatch", [lambda n: "0" * n, lambda n: "00-" * n]),
    "app.domain.filter_expression._PLAIN_TEXT": (
        "fullmatch",  # of one token
        [lambda n: "'" * n, lambda n: "'" + "a" * n, lambda n: '"""' + '"' * n + "a", lambda n: "'\n" * n],
    ),
    "app.domain.filter_expression.TOKEN_PATTERN": (
        "match",  # once for each token, up to the first that is none
        [
            lambda n: "'" * n,
            lambda n: "'a\n" * n,
            lambda n: "'''a" + "\\'" * n,
            lambda n: 'r"""' + "a" * n,
            lambda n: "'\\u00" * n,
            lambda n: "// '\n" * n,
            lambda n: "1" * n + "e",
            lambda n: "1e" * n,
            lambda n: "." + "1." * n,
            lambda n: " " * n + "\v",
        ],
    ),
    "app.domain.queue.NAME_PATTERN": ("fullmatch", [lambda n: "a" * n, lambda n: "a" + "-" * n, lambda n: "a-" * n]),
    "app.domain.settlement.TOKEN_PATTERN": (
        "fullmatch",
        [lambda n: "1" * n, lambda n: "1." + "a" * n, lambda n: "1." * n],
    ),
    "app.sqs.actions.batches.ENTRY_ID": ("fullmatch", [lambda n: "a" * n, lambda n: "a" * n + ":"]),
    "app.sqs.attribute_values.NAME": (
        "fullmatch",
        [lambda n: "a" * n + ":", lambda n: "a." * n, lambda n: "a." * n + ":"],
    ),
    "app.sqs.filter_policy.translation.NAME": ("fullmatch", [lambda n: "a" * n + ":"]),
    "app.sqs.notification.GENERATED_ID": ("fullmatch", [lambda n: "a" * n]),
    "app.sqs.number_values.NUMBER": (
        "fullmatch",
        [lambda n: "1" * n + "x", lambda n: "1." + "1" * n + "x", lambda n: "." + "1" * n + "e"],
    ),
    "app.sqs.trace_header.PARENT": ("fullmatch", [lambda n: "0" * n]),
    "app.sqs.trace_header.ROOT": ("fullmatch", [lambda n: "1-" + "0" * n, lambda n: "1-" * n]),
    "app.sqs.trace_header.TRACEPARENT": ("fullmatch", [lambda n: "0" * n, lambda n: "00-" * n]),
    "app.store.mysql.templates.INSERT": (
        "fullmatch",
        [
            lambda n: b"a" * n,
            lambda n: b"\nVALUES " * n,
            lambda n: b"\nVALUES " + b"\nON DUPLICATE KEY " * n,
            lambda n: b"\nVALUES " * n + b"\nON DUPLICATE KEY " * n + b"\n",
        ],
    ),
    "app.store.shared.statements.HEADING": (
        "findall",
        [lambda n: "-- " + "a" * n, lambda n: "-- a" * n, lambda n: "-- a: " * n],
    ),
    "app.store.shared.statements.BLOCK_MACRO": ("findall", [lambda n: "@" * n, lambda n: "@" + "a" * n]),
    "app.store.shared.statements.COMMENT": ("findall", [lambda n: " " * n, lambda n: "-" * n, lambda n: " -\t" * n]),
    "app.store.shared.statements.METADATA_MACRO": (
        "findall",
        [lambda n: "@metadata_of(" + "a" * n, lambda n: "@metadata_of(" * n],
    ),
    "app.store.shared.statements.MESSAGE_MACRO": (
        "findall",
        [lambda n: "@" * n, lambda n: "@" + "a" * n, lambda n: "@a." * n],
    ),
    "app.store.shared.statements.CONTENT_MACRO": ("findall", [lambda n: "@" + "a" * n, lambda n: "@a." * n]),
    "app.store.shared.statements.TABLE_MACRO": (
        "findall",
        [lambda n: "@entries(" + "a " * n, lambda n: "@entries(" * n, lambda n: "@entries() AS " + "a" * n],
    ),
    "app.domain.public_address.ROOT_PATH": (
        "fullmatch",
        [lambda n: "/" + "a" * n + "%", lambda n: "/a" * n + "%", lambda n: "/" * n, lambda n: "/" + "." * n],
    ),
    "app.locks.redis_consumer_directory.ENTRY": ("fullmatch", [lambda n: "1" * n, lambda n: "1 1 1 1 " + "a" * n]),
    "app.locks.redis_server_directory.COUNT": (
        "findall",
        [lambda n: "1" * n, lambda n: "1:a 1" * n, lambda n: "1:" + "a" * n, lambda n: "1:a " * n],
    ),
    "app.locks.redis_server_directory.SERVER": ("fullmatch", [lambda n: "s " + "1" * n, lambda n: "s 1 " + " " * n]),
    "app.locks.redis_url.DATABASE": ("fullmatch", [lambda n: "1" * n]),
    "app.locks.redis_url.PORT": ("fullmatch", [lambda n: "1" * n]),
    "app.sqs.query_protocol.answers.NOT_IN_XML": ("sub", [lambda n: "a" * n, lambda n: "\0" * n, lambda n: "\0a" * n]),
    "app.sqs.query_protocol.form.MALFORMED_ESCAPE": ("search", [lambda n: b"a" * n, lambda n: b"%41" * n]),
    "app.settings.ORIGIN": (
        "fullmatch",
        [lambda n: "http://" + "a." * n + "/", lambda n: "http://[" + ":" * n, lambda n: "http://a:" + "1" * n],
    ),
    "app.store.shared.statements.GROUPS_MACRO": (
        "findall",
        [lambda n: "@in_groups(:" + "a" * n, lambda n: "@in_groups(:" * n],
    ),
    "app.store.shared.statements.DELETE_MACRO": (
        "findall",
        [
            lambda n: "@delete_first(" + "a" * n,
            lambda n: "@delete_first(a, " + "a, " * n,
            lambda n: "@delete_first(a, " * n,
            lambda n: "@delete_first(a, b)" + " " * n,
        ],
    ),
    "app.store.shared.statements.INDEX_MACRO": ("findall", [lambda n: " @index(" + "a" * n, lambda n: " @index(" * n]),
    "app.store.shared.statements.UNINDEXED_MACRO": (
        "findall",
        [lambda n: "@unindexed(" + "a" * n, lambda n: "@unindexed(" * n],
    ),
    "app.store.shared.statements.IN_MACRO": ("findall", [lambda n: "@in(:" + "a" * n, lambda n: "@in(:" * n]),
    "app.store.shared.statements.COLUMNS_MACRO": ("findall", [lambda n: "@" + "a" * n, lambda n: "@a." * n]),
    "app.store.shared.statements.PARAMETER": (
        "findall",
        [lambda n: ":" * n, lambda n: ":" + "a" * n, lambda n: ":a" * n],
    ),
    "app.wire.decode_errors.PATH_PATTERN": (
        "match",
        [
            lambda n: " - at `$" + ".a" * n,
            lambda n: " - at `$." + "a" * n,
            lambda n: " - at `key` in `$" + "[...]" * n,
            lambda n: " - at `$[" + "1" * n,
        ],
    ),
    "app.wire.decode_errors.UNKNOWN_FIELD": (
        "fullmatch",
        [lambda n: "Object contains unknown field `" + "`" * n + "x", lambda n: "Object contains unknown field " * n],
    ),
    "app.wire.decode_errors.MISSING_FIELD": ("fullmatch", [lambda n: "Object missing required field `" + "a" * n]),
    "app.wire.decode_errors.INVALID_CHOICE": (
        "fullmatch",
        [lambda n: "Invalid enum value " + "a" * n, lambda n: "Invalid value " * n],
    ),
    "app.wire.decode_errors.WRONG_TYPE": (
        "fullmatch",
        [lambda n: "Expected `" + "a" * n, lambda n: "Expected `int`, got `" + "a" * n],
    ),
    "app.wire.decode_errors.OUT_OF_BOUNDS": (
        "fullmatch",
        [lambda n: "Expected `" + " |" * n, lambda n: "Expected `int` >= " + "1" * n + "x"],
    ),
    "app.wire.decode_errors.WRONG_LENGTH": (
        "fullmatch",
        [lambda n: "Expected `" + " |" * n, lambda n: "Expected `str` of length >= " + "1" * n + "x"],
    ),
    "app.wire.text_bodies.LONG_IN_JSON": ("search", [lambda n: "a" * n, lambda n: "\t\n" * n]),
    "app.wire.type_lookup.STEP_PATTERN": (
        "findall",
        [lambda n: "." + "a" * n, lambda n: "[" + "1" * n, lambda n: "[" * n, lambda n: "[...]" * n],
    ),
    "app.wire.decode_errors.WRONG_TEXT": (
        "fullmatch",
        [lambda n: "Expected `str` matching regex '" + "x" * n + "'"],
    ),
    "app.sqs.canonical_request.PLAIN_PATH": (
        "fullmatch",
        [lambda n: "/" * n, lambda n: "/a" * n + ":", lambda n: "/" + "a" * n + ":"],
    ),
    "app.sqs.canonical_request.PLAIN_VALUE": ("fullmatch", [lambda n: b"a" * n + b" "]),
    "app.sqs.credentials.REGION": (
        "search",
        [
            lambda n: b"Credential=" * n,
            lambda n: b"Credential=" + b"a" * n,
            lambda n: b"Credential=a/20260101/" + b"a" * n,
            lambda n: b"Credential=a/20260101/" * n,
        ],
    ),
    "app.sqs.handler.QUEUE_PATH": ("fullmatch", [lambda n: "/" + "0" * n, lambda n: "/000000000000/" + "a" * n + "/"]),
    "app.sqs.signature.CREDENTIAL": (
        "fullmatch",
        [lambda n: "a" * n, lambda n: "a/20260101/" + "a" * n, lambda n: "/" * n],
    ),
    "app.sqs.signature.EXPIRES": ("fullmatch", [lambda n: "1" * n]),
    "app.sqs.signature.HEX_DIGEST": ("fullmatch", [lambda n: "a" * n]),
    "app.sqs.signature.SIGNED_HEADERS": ("fullmatch", [lambda n: "a" * n + ":", lambda n: "a;" * n, lambda n: ";" * n]),
    "app.sqs.signature.TIME": ("fullmatch", [lambda n: "2" * n]),
}
"""By the place where each is compiled: how it is used, and the inputs that would cost it most."""


def modules() -> Iterator[str]:
    """The names of all modules of the service but those that act when they are imported."""
    for found in pkgutil.walk_packages(app.__path__, "app."):
        if not found.name.endswith("__main__"):
            yield found.name


def compiled() -> dict[str, re.Pattern[Any]]:
    """Every compiled pattern by its place. A pattern that is imported elsewhere keeps the place that compiles it."""
    found: dict[str, re.Pattern[Any]] = {}
    for name in modules():
        module = importlib.import_module(name)
        written = Path(str(module.__file__)).read_text()
        for variable, value in vars(module).items():
            if isinstance(value, re.Pattern) and re.search(rf"^{variable}\b.* = re\.compile\(", written, re.MULTILINE):
                found[f"{name}.{variable}"] = value
    return found


def test_every_compiled_pattern_stands_in_the_table() -> None:
    assert sorted(compiled()) == sorted(PATTERNS)


def test_no_pattern_is_compiled_where_the_table_cannot_see_it() -> None:
    hidden: list[str] = []
    for file in sorted(Path(str(app.__file__)).parent.rglob("*.py")):
        tree = ast.parse(file.read_text())
        at_the_top = {id(node.value) for node in tree.body if isinstance(node, ast.Assign | ast.AnnAssign)}
        hidden += [
            f"{file.name}:{node.lineno}"
            for node in ast.walk(tree)
            if isinstance(node, ast.Call)
            and re.fullmatch(r"re\.[a-z]+", ast.unparse(node.func))
            and id(node) not in at_the_top
        ]
    assert not hidden, "compile a pattern at the top of its module, and give the table inputs for it"


@pytest.mark.parametrize("place", PATTERNS)
def test_a_pattern_takes_time_in_proportion_to_its_input(place: str) -> None:
    act, makers = PATTERNS[place]
    pattern = compiled()[place]
    work = (lambda text: pattern.sub("", text)) if act == "sub" else getattr(pattern, act)
    for number, make in enumerate(makers):
        assert cost_growth(work, make) <= FACTOR, f"{place}, input {number}"


# ---- the patterns and containers of the shapes -----------------------------------------------------------------------


def parts(info: inspect.Type, seen: set[int]) -> Iterator[inspect.Type]:
    """A type and all types inside it."""
    if id(info) in seen:
        return
    seen.add(id(info))
    yield info
    inner: list[Any] = []
    match info:
        case inspect.Metadata():
            inner = [info.type]
        case inspect.UnionType():
            inner = [*info.types]
        case inspect.StructType():
            inner = [field.type for field in info.fields]
        case inspect.ListType():
            inner = [info.item_type]
        case inspect.DictType():
            inner = [info.key_type, info.value_type]
        case _:
            pass
    for part in inner:
        yield from parts(part, seen)


def requested() -> list[inspect.Type]:
    """Every type that a request can carry."""
    shapes = [
        shape for operation in OPERATIONS for shape in (operation.body, operation.query) if shape not in (None, bytes)
    ]
    return [part for shape in [*shapes, SendMessage] for part in parts(inspect.type_info(shape), set())]


SHAPE_PATTERNS = sorted({part.pattern for part in requested() if isinstance(part, inspect.StrType) and part.pattern})
HOSTILE: list[Maker] = [
    lambda n: "a" * n + "\0",
    lambda n: "a" + "-" * n,
    lambda n: "a " * n,
    lambda n: "a" + " " * n,
    lambda n: "0" * n + "\n",
]


@pytest.mark.parametrize("pattern", SHAPE_PATTERNS)
def test_the_pattern_of_a_field_takes_time_in_proportion_to_its_input(pattern: str) -> None:
    for make in HOSTILE:
        assert cost_growth(re.compile(pattern).search, make) <= FACTOR


def test_no_shape_builds_an_object_of_any_number_of_members() -> None:
    """Those with a limit are measured before the decoder builds them (`app/http/list_limits.py`)."""
    assert not [part for part in requested() if isinstance(part, inspect.DictType) and part.max_length is None]


WITHOUT_A_LIMIT = {"LiteralType", "EnumType"}
"""A list of these holds words that exist once, so an entry costs no more than its place."""


def test_every_list_of_a_request_has_a_limit() -> None:
    lists = [part for part in requested() if isinstance(part, inspect.ListType)]
    unlimited = [shape for shape in lists if shape.max_length is None]
    assert {type(shape.item_type).__name__ for shape in unlimited} <= WITHOUT_A_LIMIT
    assert len(lists) > len(unlimited)


# ---- scans that are written by hand ----------------------------------------------------------------------------------


def ignoring_refusals(read: Callable[[Any], object]) -> Callable[[Any], None]:
    """Read what may well be refused."""

    def work(given: Any) -> None:
        try:
            read(given)
        except Refusal:
            return

    return work


def body_of(name: str) -> Callable[[Any], None]:
    """What reads the body of this operation."""
    (found,) = [operation for operation in OPERATIONS if operation.name == name]
    return ignoring_refusals(body_decoder(found.body))


def complaint(text: str) -> None:
    """What converts an error of the decoder to a problem."""
    pointer_and_detail(text, SendMessage)


def numbered_members(n: int) -> bytes:
    """Members of different names."""
    return b",".join(b'"k%d":1' % number for number in range(n))


def numbered_entries(n: int) -> bytes:
    """Entries of a batch, as many as a form can have, with bodies that are longer in a longer form."""
    return b"&".join(b"SendMessageBatchRequestEntry.%d.MessageBody=%s" % (at, b"%41" * n) for at in range(999, 0, -1))


def read_query_protocol(raw: bytes) -> None:
    """What reads the form of a batch of SQS."""
    json_of(read_form(raw), SendMessageBatch)


def write_query_protocol(text: str) -> None:
    """What writes ten messages of SQS as XML."""
    message = ReceivedMessage(message_id="", receipt_handle="", md5_of_body="", body=text, attributes={text: text})
    SQS.xml_of("ReceiveMessage", ReceivedMessages(messages=(message,) * 10), "")


def repeated_headers(n: int) -> RequestHeaders:
    """Headers that a request has twice."""
    return RequestHeaders([(b"a%d" % number, b"") for number in range(n)] * 2)


def write_canonical_headers(headers: RequestHeaders) -> None:
    """What writes the headers of a signature that covers all of them."""
    canonical_headers(b";".join(headers.values).decode(), headers)


SCANS: dict[str, tuple[Callable[[Any], object], Maker]] = {
    "signed headers that are repeated": (write_canonical_headers, repeated_headers),
    "complaint that quotes a path": (complaint, lambda n: "Object contains unknown field `" + " - at `$" * n),
    "complaint that quotes half a path": (complaint, lambda n: " - at `key` in `$" * n),
    "unknown field": (body_of("send_message"), lambda n: b'{"' + b" - at `$" * n + b'":1}'),
    "unknown field of a batch": (body_of("send_batch"), lambda n: b'{"messages":[],"' + b"[" * n + b'":1}'),
    "wrong word": (body_of("send_message"), lambda n: b'{"durability":"' + b" - at `$.a" * n + b'"}'),
    "nested body": (body_of("send_message"), lambda n: b'{"body":' + b"[" * n),
    "nested objects": (body_of("send_message"), lambda n: b'{"body":' + b'{"a":' * n),
    "half pairs": (body_of("send_message"), lambda n: b'{"body":"' + b"\\ud800" * n + b'"}'),
    "back-slashes": (body_of("send_message"), lambda n: b'{"body":"' + b"\\\\" * n),
    "one name again and again": (body_of("send_message"), lambda n: b"{" + b'"priority":1,' * n + b'"body":1}'),
    "properties again and again": (
        body_of("send_message"),
        lambda n: b"{" + b'"properties":{"a":1},' * n + b'"to":""}',
    ),
    "many properties": (body_of("send_message"), lambda n: b'{"properties":{' + numbered_members(n) + b"}}"),
    "many messages": (body_of("send_batch"), lambda n: b'{"messages":[' + b"{}," * n + b"{}]}"),
    "many settlements": (body_of("settle_messages"), lambda n: b'{"settlements":[' + b"{}," * n + b"{}]}"),
    "many numbers": (body_of("receive_messages"), lambda n: b'{"sequence_numbers":[' + b"1," * n + b"1]}"),
    "many states": (body_of("purge_queue"), lambda n: b'{"states":[' + b'"locked",' * n + b'"locked"]}'),
    "many delays": (
        body_of("put_queue"),
        lambda n: b'{"retry":{"kind":"list","delays_seconds":[' + b"1," * n + b"1]}}",
    ),
    "many batches": (body_of("trim_archive"), lambda n: b'{"batches":[' + b"{}," * n + b"{}]}"),
    "brackets just below the limit": (is_too_deep, lambda n: b"[" * 490 + b"[[]]," * n),
    "entries of a body that filters read": (decode_object, lambda n: b'{"a":[' + b"1," * n + b"1]}"),
    "text of a body that filters read": (decode_object, lambda n: b'{"a":"' + b"[" * n + b'"}'),
    "blanks before a body that filters read": (decode_object, lambda n: b" " * n),
    "brackets in strings": (is_too_deep, lambda n: b'["["],' * n),
    "back-slashes after brackets": (is_too_deep, lambda n: b"[]," * 600 + b'"' + b"\\" * n),
    "JSON of any kind": (is_json, lambda n: b"[" + b"1," * n + b"1]"),
    "query of many states": (
        ignoring_refusals(query_decoder(browse_messages)),
        lambda n: b"&".join([b"state=locked"] * n),
    ),
    "query of many names": (
        ignoring_refusals(query_decoder(browse_messages)),
        lambda n: b"&".join(b"a%d=" % number for number in range(n)),
    ),
    "query of escapes": (ignoring_refusals(query_decoder(browse_messages)), lambda n: b"filter=" + b"%41" * n),
    "query of broken escapes": (ignoring_refusals(query_decoder(browse_messages)), lambda n: b"filter=" + b"%" * n),
    "many property headers": (
        header_fields,
        lambda n: [(b"peeklock-property-%d" % number, b"x") for number in range(n)],
    ),
    "form of SQS with entries": (read_query_protocol, numbered_entries),
    "form of SQS with a deep name": (ignoring_refusals(read_query_protocol), lambda n: b"Entry.1." * n + b"=1"),
    "form of SQS with a long number": (
        ignoring_refusals(read_query_protocol),
        lambda n: b"SendMessageBatchRequestEntry." + b"1" * n + b"=1",
    ),
    "answer of SQS": (write_query_protocol, lambda n: "<\r" * n),
    "answer of SQS with characters outside XML": (write_query_protocol, lambda n: "a\0" * n),
    "lock token": (ignoring_refusals(LockToken.parse), lambda n: "1" * n + "." + "0" * n),
    "base64": (ignoring_refusals(lambda text: base64_bytes(text, "")), lambda n: "A" * n + "!"),
    "media type": (is_json_media_type, lambda n: " " * n + "+json"),
    "charsets of a text": (lambda text: text_of(b"", text), lambda n: "text/plain" + ";charset=utf-8" * n),
    "text to read": (lambda text: text_of(text, "text/plain"), lambda n: b"\xc3\xa9" * n),
    "text to store": (lambda text: bytes_of_text(text, "text/plain"), lambda n: b'"' + b"\\u00e9" * n + b'"'),
    "name in a pointer": (pointer_segment, lambda n: "~/" * n),
    "text in a statement": (literal, lambda n: "'\\" * n),
    "bytes in a statement": (literal, lambda n: b"'\\" * n),
    "many grants": (
        lambda patterns: Grant(frozenset([Right.SEND]), patterns).allows(Right.SEND, "a" * 128),
        lambda n: ("a?",) * n,
    ),
}
"""Each with the input that would cost it most."""


@pytest.mark.parametrize("scan", SCANS)
def test_a_scan_takes_time_in_proportion_to_its_input(scan: str) -> None:
    assert cost_growth(*SCANS[scan]) <= FACTOR


@pytest.fixture
async def api() -> AsyncIterator[ApiServer]:
    """A server that needs no key."""
    async with open_api_server() as api:
        yield api


# ---- CloudEvents -----------------------------------------------------------------------------------------------------

EVENT = {"specversion": "1.0", "id": "1", "source": "/shop", "type": "order.placed"}
STRUCTURED = (b"content-type", b"application/cloudevents+json")


async def _receive_nothing() -> Event:
    return {"type": "http.disconnect"}


def event_request(api: ApiServer, raw: bytes, headers: list[tuple[bytes, bytes]]) -> Request[bytes]:
    authorization = Authorization(
        None, None, LocalAccessPolicy(requires_local_host=False, requires_json=False, requires_admin_header=False)
    )
    path = {"queue": "orders"}
    return Request(
        api.context,
        api.context.broker,
        authorization,
        None,
        ANONYMOUS,
        {},
        path,
        None,
        RequestHeaders(headers),
        _receive_nothing,
        raw,
        raw,
    )


def structured(**members: Any) -> bytes:
    return json.dumps(EVENT | members).encode()


def with_members(n: int) -> bytes:
    return structured()[:-1] + b"," + numbered_members(n) + b"}"


EVENTS: dict[str, Maker] = {
    "source": lambda n: structured(source="//" + "a" * n + "<"),
    "dataschema": lambda n: structured(dataschema="x://" + "a" * n + "<"),
    "time": lambda n: structured(time=f"{DATE}." + "0" * n),
    "attributes": with_members,
    "one attribute again and again": lambda n: structured()[:-1] + b',"a":1' * n + b"}",
    "data again and again": lambda n: structured()[:-1] + b',"data":1' * n + b"}",
    "base64": lambda n: structured(data_base64="A" * n),
    "a long name": lambda n: structured()[:-1] + b',"' + b"a" * n + b'":1}',
}


@pytest.mark.parametrize("event", EVENTS)
async def test_a_structured_event_takes_time_in_proportion_to_its_size(api: ApiServer, event: str) -> None:
    def read(raw: bytes) -> None:
        event_message(event_request(api, raw, [STRUCTURED]))

    assert cost_growth(ignoring_refusals(read), EVENTS[event]) <= FACTOR


async def test_a_binary_event_takes_time_in_proportion_to_its_size(api: ApiServer) -> None:
    def read(headers: list[tuple[bytes, bytes]]) -> None:
        event_message(event_request(api, b"", headers))

    known = [(b"ce-specversion", b"1.0"), (b"ce-id", b"1"), (b"ce-type", b"t")]
    makers: list[Maker] = [
        lambda n: [*known, (b"ce-source", b"//" + b"a" * n + b"<")],
        lambda n: [*known, (b"ce-source", b"%2f%2f" + b"%61" * n + b"<")],
        lambda n: [*known, (b"ce-source", b'"' + b"\\" * n + b'"')],
        lambda n: [*known, *((b"ce-a%d" % number, b"x") for number in range(n))],
    ]
    for make in makers:
        assert cost_growth(ignoring_refusals(read), make) <= FACTOR
        assert cost_growth(lambda headers: idempotency_payload(event_request(api, b"", headers)), make) <= FACTOR


async def test_a_filter_is_measured_before_it_is_compiled(api: ApiServer) -> None:
    assert cost_growth(ignoring_refusals(CelFilter), lambda n: "(" * (n + MAX_FILTER_BYTES)) <= FACTOR


LARGE_PROPERTIES: dict[str, dict[str, Any]] = {
    "none": {},
    "64 small": {"k": 1} | {f"k{n}": n for n in range(63)},
    "many texts": {"k": "x" * 300} | {"y" * 120 + f"{n}": "x" * 300 for n in range(60)},
    "one text": {"k": "x" * 31_000},
    "digits": {"k": "1" * 31_000},
    "a time": {"k": f"{DATE}.{'0' * 30_000}Z"},
}
ONE_PROPERTY = "message.properties.k"
EXPENSIVE = {
    "comparisons": "||".join([f"{ONE_PROPERTY}<{ONE_PROPERTY}"] * 23),
    "properties": "||".join([f"{ONE_PROPERTY}=='a'"] * 35),
    "names": "||".join(["'z' in message.properties"] * 35),
    "searches": "&&".join([f"{ONE_PROPERTY}.contains({ONE_PROPERTY})"] * 18),
    "ends": "||".join([f"{ONE_PROPERTY}.endsWith('y')"] * 25),
    "numbers": "||".join([f"double({ONE_PROPERTY})<1.0"] * 25),
    "times": "||".join([f"timestamp({ONE_PROPERTY})<message.enqueued_at"] * 18),
    "sums": "string(" * 50 + "+".join([ONE_PROPERTY] * 5) + ")" * 50 + "=='a'",
    "conditions": "(true?" * 30 + ONE_PROPERTY + ":1)" * 30 + "==1",
    "a list": f"{ONE_PROPERTY} in [" + ",".join(["'xxx'"] * 120) + "]",
}
"""Filters at the limits of what is accepted."""

MAX_COST = 50
"""Times the cost of a filter that reads one property. Measured are 4, and 20 for a time of 30,000 digits; before
expressions were bounded, lists of messages cost 5,000."""


@pytest.mark.parametrize("properties", LARGE_PROPERTIES)
async def test_the_most_expensive_filter_costs_not_much_more_than_a_plain_one(properties: str) -> None:
    envelope = Envelope("id", properties=json.dumps(LARGE_PROPERTIES[properties]).encode())
    metadata = MessageMetadata(
        1, 1, envelope, 0, MessageState.AVAILABLE, 4, 0, 0, None, 0, 0, None, None, None, None, None, None
    )

    async def cost(source: str) -> float:
        selecting = CelFilter(source)
        least = float("inf")
        for _ in range(MAX_ROUNDS):
            began = time.thread_time()
            await selecting.select([metadata] * 20)
            least = min(least, time.thread_time() - began)
        return least

    plain = await cost(f"{ONE_PROPERTY} == 'a'")
    for name, source in EXPENSIVE.items():
        assert await cost(source) <= MAX_COST * plain, name


def test_a_filter_is_compiled_once_for_many_requests() -> None:
    assert min(seconds(CelFilter, EXPENSIVE["properties"]) for _ in range(FEWEST_ROUNDS)) < MEASURABLE_SECONDS


# ---- memory ----------------------------------------------------------------------------------------------------------

BODY_BYTES = 3 << 20
MAX_MEMORY = 4
"""Times the size of a body. Its text, and one copy of each of its parts, are three."""

LARGE: dict[str, tuple[str, Callable[[], bytes]]] = {
    "messages": ("send_batch", lambda: b'{"messages":[' + b"{}," * (BODY_BYTES // 3) + b"{}]}"),
    "properties": ("send_message", lambda: b'{"properties":{' + numbered_members(BODY_BYTES // 11) + b"}}"),
    "properties of a batch": (
        "send_batch",
        lambda: b'{"messages":[{"properties":{' + numbered_members(BODY_BYTES // 11) + b"}}]}",
    ),
    "settlements": ("settle_messages", lambda: b'{"settlements":[' + b"{}," * (BODY_BYTES // 3) + b"{}]}"),
    "sequence numbers": (
        "receive_messages",
        lambda: b'{"sequence_numbers":[' + b"9999," * (BODY_BYTES // 5) + b"9]}",
    ),
    "delays": (
        "put_queue",
        lambda: b'{"retry":{"kind":"list","delays_seconds":[' + b"1," * (BODY_BYTES // 2) + b"1]}}",
    ),
    "delays of a patch": (
        "patch_queue",
        lambda: b'{"retry":{"kind":"list","delays_seconds":[' + b"1," * (BODY_BYTES // 2) + b"1]}}",
    ),
    "batches": ("trim_archive", lambda: b'{"batches":[' + b"{}," * (BODY_BYTES // 3) + b"{}]}"),
    "patterns": (
        "create_key",
        lambda: b'{"principal":"a","rights":["send"],"patterns":[' + b'"ab",' * (BODY_BYTES // 5) + b'"a"]}',
    ),
    "properties of a settlement": (
        "defer_lock",
        lambda: b'{"properties":{' + numbered_members(BODY_BYTES // 11) + b"}}",
    ),
    "properties of an edit": ("edit_message", lambda: b'{"properties":{' + numbered_members(BODY_BYTES // 11) + b"}}"),
    "attributes": ("send_raw", lambda: with_members(BODY_BYTES // 11)),
}
PATHS = {operation.name: (operation.method, operation.path) for operation in OPERATIONS}


@pytest.mark.parametrize("large", LARGE)
async def test_millions_of_entries_are_refused_before_they_are_built(api: ApiServer, large: str) -> None:
    name, make = LARGE[large]
    method, path = PATHS[name]
    await api.send()
    await api.receive()
    path = path.removeprefix("/v1").format(queue="orders", sequence_number=1, lock_token=f"1.{'0' * 32}")
    content = make()
    media = "application/cloudevents+json" if name == "send_raw" else "application/json"
    tracemalloc.start()
    try:
        answer = await api.request(method, path, content=content, headers={"content-type": media, LOCAL_ADMIN: "true"})
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    (fault,) = problem(answer, 422, "invalid-request")["errors"]
    assert "at most" in fault["detail"]
    assert most <= MAX_MEMORY * len(content)
    assert len(answer.content) < 4096


def test_a_body_that_is_no_json_is_refused_in_little_memory() -> None:
    read = body_decoder(next(operation.body for operation in OPERATIONS if operation.name == "send_message"))
    body = b'{"message_id":"' + b"\\\\" * (1 << 20) + b'\\q"}'
    tracemalloc.start()
    try:
        with pytest.raises(Refusal):
            read(body)
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert most <= 2 * len(body)  # the text that `bytes.decode` makes, and what is small


def test_a_list_at_its_limit_is_read_however_large_the_body_is() -> None:
    read = body_decoder(next(operation.body for operation in OPERATIONS if operation.name == "send_batch"))
    body = b"[" + b"1," * 20 + b"1]"
    given = read(b'{"messages":[' + b",".join([b'{"body":%s}' % body] * 1000) + b"]}")
    assert len(given.messages) == 1000
    with pytest.raises(Refusal):
        read(b'{"messages":[' + b",".join([b'{"body":%s}' % body] * 1001) + b"]}")
