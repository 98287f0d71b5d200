"""One decoded request, and the refusals of its parts."""

import hashlib
import re
from collections.abc import Container, Mapping, MutableMapping, Sequence
from contextlib import AbstractAsyncContextManager, nullcontext
from typing import Any, Generic, TypeVar

import msgspec

from app.broker.broker import Broker
from app.broker.ports.attempts import Attempt
from app.domain.access import Principal
from app.domain.instant import DAY
from app.domain.name_ranges import NameRange
from app.domain.queue import Queue, is_valid_name
from app.domain.refusals import FieldError, InvalidRequest
from app.domain.settlement import LockToken
from app.domain.transaction import TransactionKey
from app.http.asgi import Headers, Receive
from app.http.authorize import Authorization
from app.http.context import AppContext
from app.http.request_body import UNCOUNTED_BYTES
from app.http.request_headers import RequestHeaders
from app.wire.field_types import TRACEPARENT_PATTERN, Page

ATTEMPT_RETENTION = DAY
MAX_IDEMPOTENCY_KEY_LENGTH = 255
PREFER_WAIT = re.compile(r'(?:^|[,;\s])wait\s*=\s*("?)(\d+)\1(?=\s*(?:[,;]|$))', re.IGNORECASE)
"""The preference `wait` of RFC 7240. Its name is case-insensitive, and its value may be quoted."""
ENTITY_TAG = re.compile(r'"([\x21\x23-\x7e\x80-\xff]*)"')
"""The text between the quotes of an ETag. A `W/` ahead of them is ignored: a proxy that compresses answers weakens
their tags, and this server gives each state of a resource its own tag, so a weak tag is as good as a strong one."""
TRACEPARENT = re.compile(TRACEPARENT_PATTERN)
Body = TypeVar("Body")


class AnyTag:
    """The tags of `*`, which matches any tag of a resource that exists."""

    def __contains__(self, tag: object) -> bool:
        return True


ANY_TAG = AnyTag()


class Request(msgspec.Struct, Generic[Body]):
    """One decoded and authorized request.

    `broker` is that of the context. `credential` is what the interface has read from the headers; access is checked again
    with it after a wait. `state` is the ASGI state of the request, in which the application leaves values for the server.
    `root_path` precedes every path that clients use.
    """

    context: AppContext
    broker: Broker
    authorization: Authorization
    credential: Any
    principal: Principal
    state: MutableMapping[str, Any]
    path: Mapping[str, str]
    query: Any
    headers: RequestHeaders
    receive: Receive
    raw_body: bytes
    body: Body
    root_path: str = ""

    @property
    def request_id(self) -> str:
        """The id that problems and log lines name."""
        request_id: str = self.state["request_id"]
        return request_id

    async def queue(self) -> Queue:
        """Return the queue in the path. Refuses with `QueueNotFound`."""
        return await self.broker.queue_cache.by_name(self.path["queue"])

    def reserve_page(self, limit: int, item_bytes: int) -> AbstractAsyncContextManager[None]:
        """Return a reservation of the bytes of a page, to hold while it is read: slow clients may hold those of other answers.

        Refuses with `Overloaded` if it gets none.
        """
        size = limit * item_bytes
        return nullcontext() if size <= UNCOUNTED_BYTES else self.context.response_budget.reserve(size)

    def idempotent_attempt(self, verb: str, payload: bytes | None = None) -> Attempt | None:
        """Return the attempt that an Idempotency-Key identifies, None without that header.

        A repeat must have the same `payload` as the first request; the default is the body. Refuses with
        `InvalidRequest`.
        """
        header = self.headers.values.get(b"idempotency-key")
        if header is None:
            return None
        if b"idempotency-key" in self.headers.repeated:
            raise given_twice("Idempotency-Key")
        key = header.decode("latin-1")
        if not 0 < len(key) <= MAX_IDEMPOTENCY_KEY_LENGTH:
            raise invalid_header(
                "Idempotency-Key", f"An Idempotency-Key has 1 to {MAX_IDEMPOTENCY_KEY_LENGTH} characters."
            )
        entity = self.path.get("queue") or self.path.get("topic", "")
        scope = "\0".join((self.principal.name, verb, entity, key))
        return Attempt(
            _sha256(scope.encode()), _sha256(self.raw_body if payload is None else payload), ATTEMPT_RETENTION
        )

    def transaction_key(self, transaction_id: str) -> TransactionKey:
        """Return the key of a transaction of this client."""
        return TransactionKey(transaction_id, self.principal.name)

    def wait_seconds(self, requested: float | None, default: float = 0.0) -> float:
        """Return the seconds to wait: `requested`, those of `Prefer: wait=N` or `default`, at most the cap of the server."""
        wanted = next(one for one in (requested, self._preferred_wait(), default) if one is not None)
        return min(wanted, self.context.long_poll_cap_seconds)

    def preference_applied(self, requested: float | None) -> Headers:
        """Return the header that says how long the request could wait, if that followed from `Prefer` (RFC 7240, 3)."""
        if requested is not None or self._preferred_wait() is None:
            return ()
        return ((b"preference-applied", b"wait=%d" % self.wait_seconds(None)),)

    def _preferred_wait(self) -> float | None:
        preference = PREFER_WAIT.search(b",".join(self.headers.every(b"prefer")).decode("latin-1"))
        return float(preference.group(2)) if preference else None

    def if_match(self) -> Container[str] | None:
        """Return the tags of If-Match, one of which the resource must have (RFC 9110, 13.1.1); None without the header."""
        return self._tags(b"if-match")

    def if_none_match(self) -> Container[str] | None:
        """Return the tags of If-None-Match, none of which the resource may have (RFC 9110, 13.1.2); None without the header."""
        return self._tags(b"if-none-match")

    def _tags(self, header: bytes) -> Container[str] | None:
        values = self.headers.every(header)
        if not values:
            return None
        tags = b",".join(values).decode("latin-1")
        return ANY_TAG if tags.strip() == "*" else frozenset(ENTITY_TAG.findall(tags))

    def traceparent(self) -> str | None:
        """Return the W3C trace context to store with a message. A malformed one is ignored, as the standard requires."""
        traceparent = self.headers.text(b"traceparent")
        return traceparent if traceparent and TRACEPARENT.fullmatch(traceparent) else None


def commit_attempt(queue_id: int, token: LockToken, payload: bytes) -> Attempt:
    """Return the attempt that a lock token identifies: under one token at most one commit takes effect."""
    scope = "\0".join(("commit", str(queue_id), str(token)))
    return Attempt(_sha256(scope.encode()), _sha256(payload), ATTEMPT_RETENTION)


def invalid_header(name: str, detail: str) -> InvalidRequest:
    """Return the refusal of a header."""
    return InvalidRequest(field_errors=[FieldError(f"#/header/{name}", detail)])


def given_twice(name: str) -> InvalidRequest:
    """Return the refusal of a header that a request has more than once."""
    return invalid_header(name, f"The header `{name}` is given more than once.")


def invalid_query(name: str, detail: str) -> InvalidRequest:
    """Return the refusal of a query parameter."""
    return InvalidRequest(field_errors=[FieldError(f"#/query/{name}", detail)])


def invalid_cursor() -> InvalidRequest:
    """Return the refusal of a cursor that this list did not return."""
    return invalid_query("cursor", "This cursor did not come from this list.")


def name_cursor(page: Page, ranges: Sequence[NameRange] = ()) -> str:
    """Return the text after which a page of names begins: a name, or the end of a range. Refuses with `InvalidRequest`."""
    after = page.cursor or ""
    # The end of all names is no cursor, because nothing follows it.
    ends = [found.end for found in ranges if found.start]
    if after and not is_valid_name(after) and after not in ends:
        raise invalid_cursor()
    return after


def invalid_path(name: str, detail: str) -> InvalidRequest:
    """Return the refusal of a path parameter."""
    return InvalidRequest(field_errors=[FieldError(f"#/path/{name}", detail)])


def _sha256(value: bytes) -> bytes:
    return hashlib.sha256(value).digest()
