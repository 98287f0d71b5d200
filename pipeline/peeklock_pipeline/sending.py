"""Messages sent to a queue over HTTP, many to a request, by whoever may have to send them again.

The message ids make it safe: within its window a queue that looks for duplicates stores none twice, so an answer that
was lost is asked for again, and so is a whole task.
"""

import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from types import TracebackType
from typing import Any
from urllib.parse import quote, urlsplit

import httpx

from peeklock_pipeline.refusals import BadOption, InDoubt, NoDuplicateDetection, SendRefused, ServerUnavailable

REQUEST_MESSAGES = 500
"""Messages of one request; the server takes 1000."""

REQUEST_BYTES = 4 << 20
"""Bytes of one request, unless a single message has more; the server takes 16 MiB unless it is set otherwise."""

ANSWER_SECONDS = 60.0
TIMEOUT_SECONDS = 60.0
"""How long one request is repeated while the server is busy, starting or away, or its queue full."""

FIRST_WAIT_SECONDS = 0.1
MAX_WAIT_SECONDS = 5.0

RETRYABLE_STATUSES = frozenset({429, 500, 502, 503, 504, 507})
"""What a server, or a proxy before it, says when the same request may go through later; 507 says that a queue is full."""


def parse_server_url(url: str) -> str:
    """The URL of a server, to which paths are added. Refuses with `BadOption` what is none."""
    try:
        parts = urlsplit(url)
        is_one = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:  # a port that is none
        is_one = False
    if not is_one:
        raise BadOption(f"The URL of a server begins with http:// or https:// and a host, which {url!r} does not.")
    return url.rstrip("/")


def http_client(url: str, api_key: str | None, seconds: float) -> httpx.Client:
    """Connections to a server that show it a key, and wait so long for an answer. Refuses with `BadOption`."""
    if api_key and not (api_key.isascii() and api_key.isprintable()):
        raise BadOption("This is not a key of a server: keys are of ASCII characters.")
    headers = {"Authorization": f"Bearer {api_key}"} if api_key else {}
    return httpx.Client(base_url=parse_server_url(url), headers=headers, timeout=seconds)


@dataclass(frozen=True, slots=True)
class Destination:
    """A queue of a server. It holds no connection, so that it can travel to executors."""

    url: str
    queue: str
    api_key: str | None = field(default=None, repr=False)
    timeout_seconds: float = TIMEOUT_SECONDS
    """For how many seconds a request is repeated."""

    @classmethod
    def from_url(cls, url: str, queue: str, api_key: str | None = None) -> "Destination":
        """A queue at a server's URL. Refuses with `BadOption`."""
        return cls(parse_server_url(url), queue, api_key)

    def limited_to_window(self, window: float) -> "Destination":
        """The same queue, sent to with no more patience than it remembers message ids, in seconds."""
        return replace(self, timeout_seconds=min(TIMEOUT_SECONDS, window / 2))

    @property
    def path(self) -> str:
        """The queue's path below the server's URL."""
        return f"/v1/queues/{quote(self.queue, safe='')}"


@dataclass(frozen=True, slots=True)
class SendResult:
    """How many messages a queue has taken, and how many of them it had already."""

    messages: int = 0
    duplicates: int = 0

    def __add__(self, other: "SendResult") -> "SendResult":
        return SendResult(self.messages + other.messages, self.duplicates + other.duplicates)


class RateLimiter:
    """Lets at most so many messages through per second, on the average since its first."""

    def __init__(self, per_second: float) -> None:
        self._per_second = per_second
        self._free_at = 0.0

    @property
    def max_request_messages(self) -> int:
        """Messages that are worth one request at this pace."""
        return max(1, min(REQUEST_MESSAGES, int(self._per_second)))

    def wait(self, messages: int) -> None:
        """Return once so many more may go."""
        now = time.monotonic()
        begin = max(now, self._free_at)
        self._free_at = begin + messages / self._per_second
        time.sleep(begin - now)


class Sender:
    """A connection to a destination, for one `with` block.

    `deadline` is the time of day after which nothing more is sent: what may have been sent before is then forgotten by
    the queue, and would be stored again.
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
        """For how many seconds the queue remembers a message id.

        Refuses with `NoDuplicateDetection` where it does not, and with `ServerUnavailable`.
        """
        answer = self._request("GET", self._destination.path)
        window = answer["duplicate_detection_window_seconds"]
        if window is None:
            raise NoDuplicateDetection(
                f"The queue {self._destination.queue} does not look for duplicates, so what is sent again after a "
                "failure would be stored twice: give it a duplicate_detection_window_seconds that is longer than "
                "failures last."
            )
        return float(window)

    def send(self, messages: Iterable[bytes], rate_limiter: RateLimiter | None = None) -> SendResult:
        """Send messages, each its JSON with a `message_id`, in order; requests are all or none.

        Refuses with `SendRefused`, `ServerUnavailable` and `InDoubt`; what was sent before stays.
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
        """The decoded answer, if need be after a while."""
        headers = {"Content-Type": "application/json"} if body is not None else {}
        give_up_at = time.monotonic() + self._destination.timeout_seconds
        wait = FIRST_WAIT_SECONDS
        while True:
            self._check_deadline()
            try:
                answer = self._http.request(method, path, content=body, headers=headers)
                problem_found, asked = problem_text(answer), _retry_after(answer)
            except httpx.TransportError as error:
                answer, problem_found, asked = None, str(error) or type(error).__name__, 0.0
            if answer is not None and answer.is_success:
                return answer.json()
            if answer is not None and answer.status_code not in RETRYABLE_STATUSES:
                raise SendRefused(f"{self._destination.url} refuses {method} {path}: {problem_found}")
            pause = max(wait, asked)
            if time.monotonic() + pause > give_up_at:
                raise ServerUnavailable(f"{self._destination.url} does not do {method} {path}: {problem_found}")
            time.sleep(pause)
            wait = min(wait * 2, MAX_WAIT_SECONDS)

    def _check_deadline(self) -> None:
        if self._deadline is not None and time.time() > self._deadline:
            raise InDoubt(
                "Messages that may have been sent before are no longer remembered by the queue "
                f"{self._destination.queue}, so sending them again could store them twice."
            )


def split_requests(messages: Iterable[bytes], max_messages: int = REQUEST_MESSAGES) -> Iterator[Sequence[bytes]]:
    """Messages gathered, in order, into what one request carries."""
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
    """The seconds of Retry-After; the date that a proxy may say instead is not looked at."""
    said = answer.headers.get("retry-after", "")
    return float(said) if said.isdecimal() else 0.0


def problem_text(answer: httpx.Response) -> str:
    """What a server says against a request: the status, and its problem document with the faults that it names."""
    if answer.status_code == 401:
        return "401, it wants an API key that it knows: --api-key, PEEKLOCK_API_KEY, or the option api_key"
    if not answer.headers.get("content-type", "").startswith("application/problem+json"):
        return f"{answer.status_code} {answer.text[:200]}".strip()
    problem = answer.json()
    faults = "; ".join(f"{fault['pointer']}: {fault['detail']}" for fault in problem.get("errors", []))
    return f"{answer.status_code} {problem['code']}, {problem['detail']}" + (f" ({faults})" if faults else "")
