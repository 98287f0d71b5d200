"""Messages sent to a queue over HTTP, many in a request, by tasks that may be repeated.

Message ids make repetition safe. Within its window, a queue with duplicate detection stores each id once. So a request
whose answer was lost is sent again, and a whole task may be repeated.
"""

import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from types import TracebackType
from typing import Any
from urllib.parse import quote, urlsplit

import httpx

from peeklock_pipeline.loopback import direct_mounts
from peeklock_pipeline.refusals import BadOption, InDoubt, NoDuplicateDetection, SendRefused, ServerUnavailable

REQUEST_MESSAGES = 500
"""Messages of one request; the server accepts 1000."""

REQUEST_BYTES = 4 << 20
"""Bytes of one request, unless a single message has more. The server accepts 16 MiB by default."""

ANSWER_SECONDS = 60.0
TIMEOUT_SECONDS = 60.0
"""How long one request is repeated while the server is busy, starting or unreachable, or the queue is full."""

FIRST_WAIT_SECONDS = 0.1
MAX_WAIT_SECONDS = 5.0

RETRYABLE_STATUSES = frozenset({429, 500, 502, 503, 504, 507})
"""Statuses, from a server or a proxy, after which the same request may succeed later; 507: the queue is full."""


def parse_server_url(url: str) -> str:
    """Return the base URL of a server. Refuses with `BadOption` text that is not a URL of a server."""
    try:
        parts = urlsplit(url)
        is_valid = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:  # an invalid port
        is_valid = False
    if not is_valid:
        raise BadOption(f"The URL of a server begins with http:// or https:// and a host; {url!r} does not.")
    return url.rstrip("/")


def http_client(url: str, api_key: str | None, seconds: float) -> httpx.Client:
    """Return a client that sends the key and waits `seconds` for an answer. Refuses with `BadOption`."""
    if api_key and not (api_key.isascii() and api_key.isprintable()):
        raise BadOption("This is not a key of a server: keys have ASCII characters only.")
    headers = {"Authorization": f"Bearer {api_key}"} if api_key else {}
    base = parse_server_url(url)
    return httpx.Client(base_url=base, headers=headers, timeout=seconds, mounts=direct_mounts(base))


@dataclass(frozen=True, slots=True)
class Destination:
    """A queue of a server. It holds no connection, so it can be sent to executors."""

    url: str
    queue: str
    api_key: str | None = field(default=None, repr=False)
    timeout_seconds: float = TIMEOUT_SECONDS
    """How long a request is repeated, in seconds."""

    @classmethod
    def from_url(cls, url: str, queue: str, api_key: str | None = None) -> "Destination":
        """Return the destination for a queue at a server's URL. Refuses with `BadOption`."""
        return cls(parse_server_url(url), queue, api_key)

    def limited_to_window(self, window: float) -> "Destination":
        """Return the same queue with a timeout of at most half the duplicate detection window, in seconds."""
        return replace(self, timeout_seconds=min(TIMEOUT_SECONDS, window / 2))

    @property
    def path(self) -> str:
        """The path of the queue below the server's URL."""
        return f"/v1/queues/{quote(self.queue, safe='')}"


@dataclass(frozen=True, slots=True)
class SendResult:
    """The number of messages that a queue accepted, and the number of duplicates among them."""

    messages: int = 0
    duplicates: int = 0

    def __add__(self, other: "SendResult") -> "SendResult":
        return SendResult(self.messages + other.messages, self.duplicates + other.duplicates)


class RateLimiter:
    """Limits messages to `per_second` on average, counted from the first one."""

    def __init__(self, per_second: float) -> None:
        self._per_second = per_second
        self._free_at = 0.0

    @property
    def max_request_messages(self) -> int:
        """The number of messages of one request at this rate."""
        return max(1, min(REQUEST_MESSAGES, int(self._per_second)))

    def wait(self, messages: int) -> None:
        """Sleep until `messages` more may be sent."""
        now = time.monotonic()
        begin = max(now, self._free_at)
        self._free_at = begin + messages / self._per_second
        time.sleep(begin - now)


class Sender:
    """A connection to a destination, for one `with` block.

    `deadline` is the time of day after which nothing more is sent. After it, the queue has forgotten the ids of
    messages that may have been sent, and would store them again.
    """

    def __init__(self, destination: Destination, deadline: float | None = None) -> None:
        self._destination = destination
        self._deadline = deadline
        self._http = http_client(destination.url, destination.api_key, ANSWER_SECONDS)

    def __enter__(self) -> "Sender":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._http.close()

    def window(self) -> float:
        """Return how long the queue remembers a message id, in seconds.

        Refuses with `NoDuplicateDetection` if the queue does not detect duplicates, and with `ServerUnavailable`.
        """
        answer = self._request("GET", self._destination.path)
        window = answer["duplicate_detection_window_seconds"]
        if window is None:
            raise NoDuplicateDetection(
                f"The queue {self._destination.queue} does not detect duplicates: messages sent again after a "
                "failure would be stored twice. Set its duplicate_detection_window_seconds to longer than "
                "a failure lasts."
            )
        return float(window)

    def send(self, messages: Iterable[bytes], rate_limiter: RateLimiter | None = None) -> SendResult:
        """Send messages in order, each as its JSON with a `message_id`. A request is stored completely or not at all.

        Refuses with `SendRefused`, `ServerUnavailable` and `InDoubt`; messages sent before stay.
        """
        sent = SendResult()
        for request in split_requests(
            messages, rate_limiter.max_request_messages if rate_limiter else REQUEST_MESSAGES
        ):
            if rate_limiter:
                rate_limiter.wait(len(request))
            body = b'{"messages":[' + b",".join(request) + b"]}"
            results = self._request("POST", f"{self._destination.path}/messages/batch", body)["results"]
            sent += SendResult(len(results), sum(result["duplicate"] for result in results))
        return sent

    def _request(self, method: str, path: str, body: bytes | None = None) -> Any:
        """Return the decoded answer. Repeats the request until the timeout."""
        headers = {"Content-Type": "application/json"} if body is not None else {}
        give_up_at = time.monotonic() + self._destination.timeout_seconds
        wait = FIRST_WAIT_SECONDS
        while True:
            self._check_deadline()
            try:
                answer = self._http.request(method, path, content=body, headers=headers)
                problem_found, retry_after = problem_text(answer), _retry_after(answer)
            except httpx.TransportError as error:
                answer, problem_found, retry_after = None, str(error) or type(error).__name__, 0.0
            if answer is not None and answer.is_success:
                return answer.json()
            if answer is not None and answer.status_code not in RETRYABLE_STATUSES:
                raise SendRefused(f"{self._destination.url} refuses {method} {path}: {problem_found}")
            pause = max(wait, retry_after)
            if time.monotonic() + pause > give_up_at:
                raise ServerUnavailable(f"{self._destination.url} cannot do {method} {path}: {problem_found}")
            time.sleep(pause)
            wait = min(wait * 2, MAX_WAIT_SECONDS)

    def _check_deadline(self) -> None:
        if self._deadline is not None and time.time() > self._deadline:
            raise InDoubt(
                "Messages that may have been sent before are no longer remembered by the queue "
                f"{self._destination.queue}, so sending them again could store them twice."
            )


def split_requests(messages: Iterable[bytes], max_messages: int = REQUEST_MESSAGES) -> Iterator[Sequence[bytes]]:
    """Group messages, in order, into requests."""
    batch: list[bytes] = []
    size = 0
    for message in messages:
        if batch and (len(batch) == max_messages or size + len(message) > REQUEST_BYTES):
            yield batch
            batch, size = [], 0
        batch.append(message)
        size += len(message)
    if batch:
        yield batch


def _retry_after(answer: httpx.Response) -> float:
    """Return the seconds of Retry-After; 0 for a date, which a proxy may send instead."""
    value = answer.headers.get("retry-after", "")
    return float(value) if value.isdecimal() else 0.0


def problem_text(answer: httpx.Response) -> str:
    """Return the status of a refused request, and its problem document with the faults that it names."""
    if answer.status_code == 401:
        return "401, it requires a valid API key: --api-key, PEEKLOCK_API_KEY, or the option api_key"
    if not answer.headers.get("content-type", "").startswith("application/problem+json"):
        return f"{answer.status_code} {answer.text[:200]}".strip()
    problem = answer.json()
    faults = "; ".join(f"{fault['pointer']}: {fault['detail']}" for fault in problem.get("errors", []))
    return f"{answer.status_code} {problem['code']}, {problem['detail']}" + (f" ({faults})" if faults else "")
