"""What every endpoint has at hand, and the one call it is answering."""

import hashlib
import re
from collections.abc import Callable, Container, Mapping
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from app.api.bodies import Headers, Receive
from app.api.figures import Figures
from app.api.metrics import Metrics
from app.broker.broker import Broker
from app.broker.keys import Doorkeeper
from app.broker.ports import Attempt
from app.domain.access import Principal
from app.domain.instant import DAY
from app.domain.queue import Queue
from app.domain.refusals import Fault, InvalidRequest
from app.runtime.byte_budget import ByteBudget

ATTEMPT_KEPT = DAY
LONGEST_ATTEMPT_KEY = 255
WAIT = re.compile(r'(?:^|[,;\s])wait\s*=\s*("?)(\d+)\1(?=\s*(?:[,;]|$))', re.IGNORECASE)
"""A preference of RFC 7240, whose name has no case and whose value may be quoted."""
ENTITY_TAG = re.compile(r'"([\x21\x23-\x7e\x80-\xff]*)"')
"""What stands between the quotes. Ahead of them may be a W/, since a proxy that compresses answers weakens their tags;
nobody gives two states of a thing one tag here, so they are as good as strong ones."""
TRACEPARENT = re.compile(r"[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}")

Body = TypeVar("Body")


class AnyTag:
    """What `*` stands for: whatever tag the thing has, so long as it is there."""

    def __contains__(self, tag: object) -> bool:
        return True


ANY_TAG = AnyTag()


@dataclass(frozen=True, slots=True)
class Desk:
    """The broker, the doorkeeper (None: everybody may do everything), the limits of one server and its meters.

    `is_draining` says whether the server is about to stop, `is_loopback` whether only this machine reaches it.
    `requests` counts the bytes of bodies in hand. `names_queues` says whether any queue is named in the metrics, for the
    bearer of `metrics_key` or of an API key that may.
    """

    broker: Broker
    doorkeeper: Doorkeeper | None
    metrics: Metrics
    largest_request: int
    longest_wait_seconds: float
    is_draining: Callable[[], bool]
    requests: ByteBudget
    figures: Figures
    metrics_key: str | None = None
    names_queues: bool = True
    is_loopback: bool = False


@dataclass(slots=True)
class Call(Generic[Body]):
    """One request, decoded: who asks, about what, with which body and query."""

    desk: Desk
    principal: Principal
    request_id: str
    path: Mapping[str, str]
    query: Any
    headers: Headers
    receive: Receive
    raw: bytes
    body: Body

    @property
    def broker(self) -> Broker:
        """The rooms behind the verbs."""
        return self.desk.broker

    async def queue(self) -> Queue:
        """The queue that the path names. Refuses with `QueueNotFound`."""
        return await self.desk.broker.catalogue.named(self.path["queue"])

    def header(self, name: bytes) -> str | None:
        """The first header of this lower-case name."""
        for key, value in self.headers:
            if key == name:
                return value.decode("latin-1")
        return None

    def attempt(self, verb: str, payload: bytes | None = None) -> Attempt | None:
        """The attempt that an Idempotency-Key makes of this call, if it carries one.

        `payload` is what a repeat must have in common with the first try; without it the body.
        """
        keys = self._lines(b"idempotency-key")
        if not keys:
            return None
        key, *more = keys
        if more:
            raise in_header("Idempotency-Key", "This header is given more than once.")
        if not 0 < len(key) <= LONGEST_ATTEMPT_KEY:
            raise in_header("Idempotency-Key", f"An Idempotency-Key has 1 to {LONGEST_ATTEMPT_KEY} characters.")
        scope = "\0".join((self.principal.name, verb, self.path["queue"], key))
        return Attempt(_digest(scope.encode()), _digest(self.raw if payload is None else payload), ATTEMPT_KEPT)

    def patience(self, asked: float | None) -> float:
        """How long to wait: as asked in the body or by `Prefer: wait=N`, at most the server's cap."""
        if asked is None:
            preference = WAIT.search(",".join(self._lines(b"prefer")))
            asked = float(preference.group(2)) if preference else 0.0
        return min(asked, self.desk.longest_wait_seconds)

    def if_match(self) -> Container[str] | None:
        """The tags of which If-Match demands one (RFC 9110, 13.1.1); None without the header."""
        return self._tags(b"if-match")

    def if_none_match(self) -> Container[str] | None:
        """The tags of which If-None-Match wants none (RFC 9110, 13.1.2); None without the header."""
        return self._tags(b"if-none-match")

    def _tags(self, header: bytes) -> Container[str] | None:
        lines = self._lines(header)
        if not lines:
            return None
        given = ",".join(lines)
        return ANY_TAG if given.strip() == "*" else frozenset(ENTITY_TAG.findall(given))

    def _lines(self, name: bytes) -> list[str]:
        """Every header of this lower-case name."""
        return [value.decode("latin-1") for key, value in self.headers if key == name]

    def traceparent(self) -> str | None:
        """The W3C trace context to keep with a message; a malformed one is ignored, as its standard asks."""
        given = self.header(b"traceparent")
        return given if given and TRACEPARENT.fullmatch(given) else None


def in_header(name: str, detail: str) -> InvalidRequest:
    """The refusal of a header."""
    return InvalidRequest(faults=[Fault(f"#/header/{name}", detail)])


def in_query(name: str, detail: str) -> InvalidRequest:
    """The refusal of a query parameter."""
    return InvalidRequest(faults=[Fault(f"#/query/{name}", detail)])


def wrong_cursor() -> InvalidRequest:
    """The refusal of a cursor that no page of this list has answered."""
    return in_query("cursor", "This cursor did not come from this list.")


def in_path(name: str, detail: str) -> InvalidRequest:
    """The refusal of a part of the path."""
    return InvalidRequest(faults=[Fault(f"#/path/{name}", detail)])


def _digest(value: bytes) -> bytes:
    return hashlib.sha256(value).digest()
