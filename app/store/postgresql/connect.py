"""Opens connections to PostgreSQL: reads the address, tries its hosts, and finds the one that accepts writes."""

import asyncio
import os
import socket
import ssl
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias
from urllib.parse import SplitResult, parse_qsl, urlencode, urlsplit

import asyncpg  # pyright: ignore[reportMissingTypeStubs] (see session.py)

from app.domain.refusals import StoreUnavailable
from app.store.postgresql.session import ANSWER_SECONDS, DriverConnection, translate_errors
from app.store.postgresql.timelines import FormerPrimary, HighestTimelines, Timeline, read_timeline
from app.store.url import BadStoreUrl, read_connect_timeout

CONNECT_SECONDS = 5
"""How long each host may take to accept a connection, unless the URL has a `connect_timeout`."""

MAX_PREPARED = 400
"""More than there are statements, so that a connection prepares each of them once."""

SETTINGS = {
    # No statement here joins two large tables, so a plan without an index is always a mistake. With the statistics
    # alone, which lag behind a queue that fills and empties, the planner makes that mistake.
    "enable_hashjoin": "off",
    "enable_mergejoin": "off",
    "enable_seqscan": "off",
    "enable_bitmapscan": "off",
    "enable_sort": "off",
    "enable_material": "off",
    "enable_memoize": "off",
    "jit": "off",
    "plan_cache_mode": "force_generic_plan",
    "default_transaction_isolation": "read committed",
    # A transaction that holds a row for longer has been stopped in the middle.
    "lock_timeout": "3s",
    "statement_timeout": "15s",
    # A client that has vanished must not keep its rows. The server detects it within half a minute.
    "idle_in_transaction_session_timeout": "30s",
    "tcp_keepalives_idle": "10",
    "tcp_keepalives_interval": "5",
    "tcp_keepalives_count": "4",
}

TLS_FILES = ("sslrootcert", "sslcert", "sslkey", "sslcrl")
"""The options of a URL that name files. The driver's error for a missing one does not say which it is."""

HINTS = {
    "unsupported startup parameter": "; behind PgBouncer, write ?statement_cache_size=0 into the database URL",
    "rejected SSL upgrade": "; it has no TLS, which the sslmode in the database URL needs",
    "closed in the middle": "; its log may say why",
}
"""What to add to a text of the driver that contains the first one."""

OTHER_HOST_CODES = (62, 64)
"""The codes of OpenSSL for a certificate that names other hosts: X509_V_ERR_HOSTNAME_MISMATCH and ..._IP_ADDRESS_MISMATCH."""

GRACE_SECONDS = 1.0
"""How much longer the other hosts may take than the first one that accepts a connection."""

KEEPALIVES = {"TCP_KEEPIDLE": 10, "TCP_KEEPINTVL": 5, "TCP_KEEPCNT": 4}
"""The same keep-alive at this end, with the options that the operating system knows."""


Opened: TypeAlias = tuple[DriverConnection, Timeline]
"""A connection, and the timeline of its server."""

Attempt: TypeAlias = asyncio.Task[Opened]
"""The attempt to connect to one host."""


@dataclass(frozen=True, slots=True)
class Address:
    """The database's address: the URL of each host by its name, in the order of the text.

    A connection reaches one server session of its own, but not behind a pooler such as PgBouncer: prepared statements,
    settings and locks end with the transaction there. `?statement_cache_size=0` in the URL declares a pooler.
    """

    hosts: Mapping[str, str]
    is_pooled: bool
    connect_seconds: int = CONNECT_SECONDS


def parse_address(url: str) -> Address:
    """Read `postgresql://user:password@host:port,host:port/database?options`. The driver knows the other options.

    Refuses with `BadStoreUrl` unreadable files too.
    """
    parts = urlsplit(url)
    options = dict(parse_qsl(parts.query))
    for key in TLS_FILES:
        if key in options and not os.access(options[key], os.R_OK):
            raise BadStoreUrl(f"The database URL names a file that cannot be read: {key}={options[key]}.")
    cache_size = options.pop("statement_cache_size", None)
    if cache_size not in (None, "0"):
        raise BadStoreUrl("statement_cache_size in the database URL may only be 0, which declares a pooler.")
    seconds = read_connect_timeout(options.pop("connect_timeout", str(CONNECT_SECONDS)))
    return Address(_hosts(parts, options), is_pooled=cache_size is not None, connect_seconds=seconds)


def _hosts(parts: SplitResult, options: Mapping[str, str]) -> dict[str, str]:
    """Split the URL into one for each host. Hosts are written before the path, or in the option `host`.

    With one URL for all hosts, the driver would share one time limit among them.
    """
    user, at, names = parts.netloc.rpartition("@")
    if names or "host" not in options:
        urls = {name: parts._replace(netloc=f"{user}{at}{name}") for name in names.split(",")}
        return {name: url._replace(query=urlencode(options)).geturl() for name, url in urls.items()}
    names, ports = options["host"].split(","), options.get("port", "").split(",")
    if len(ports) not in (1, len(names)):
        raise BadStoreUrl("The database URL has several ports, but not one for each host.")
    others = {name: value for name, value in options.items() if name not in ("host", "port")}
    hosts: dict[str, str] = {}
    for name, port in zip(names, ports * len(names) if len(ports) == 1 else ports, strict=True):
        own = others | {"host": name} | ({"port": port} if port else {})
        hosts[f"{name}:{port}" if port else name] = parts._replace(query=urlencode(own)).geturl()
    return hosts


REPLICATION_WAIT = "SyncRepWaitForLSN"
"""The function of PostgreSQL that waits for synchronous standbys. It warns if the wait was cancelled: the transaction is
committed here, and the standbys may not have it. Its name is the same in every language of the server."""


class KeepAliveConnection(asyncpg.Connection):
    """The driver's connection with TCP keep-alive, so that the system detects a vanished server.

    `is_in_doubt` is set if the server has cancelled a wait for its synchronous standbys.
    """

    _transport: asyncio.Transport
    is_in_doubt = False

    def note_warning(self, _connection: Any, message: Any) -> None:
        """Note a warning of the server. The driver reports it before it returns the answer that follows."""
        if message.server_source_function == REPLICATION_WAIT:
            self.is_in_doubt = True

    def keep_alive(self) -> None:
        sock: socket.socket = self._transport.get_extra_info("socket")
        if sock.family == socket.AF_UNIX:
            return
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for name, value in KEEPALIVES.items():
            if option := getattr(socket, name, None):
                sock.setsockopt(socket.IPPROTO_TCP, option, value)


class ConnectFailed(Exception):
    """No host accepts a connection. The text is for the operator: it names each host and its reason."""


class Connector:
    """Opens connections to the host that accepts writes.

    While it has an open connection, it begins with the host of that. If that host does not accept another one in time, it
    tries all others at once, so that hosts that never answer delay a connection by one time limit at most. Without an open
    connection it tries all hosts at once: the last one may have come back as a former primary. Of several that accept
    writes, it takes the one that was promoted last. It takes none with a lower timeline than the highest known one
    (`timelines`).
    """

    def __init__(self, address: Address, answer_seconds: float | None = ANSWER_SECONDS) -> None:
        self.timelines = HighestTimelines()
        self._address = address
        self._answer_seconds = answer_seconds
        self._last_used: str | None = None
        self._opened: set[DriverConnection] = set()

    async def __call__(self) -> DriverConnection:
        """Open a connection. Raises `StoreUnavailable` if no host accepts one."""
        failures: dict[str, Exception] = {}
        for hosts in self._rounds():
            opened = await self._open_each(hosts, failures)
            if opened and (connection := self._choose(opened, failures)):
                return connection
        raise self._failure(failures)

    def _rounds(self) -> Sequence[Sequence[str]]:
        """Return the hosts that are tried together, one round after the other."""
        self._opened = {connection for connection in self._opened if not connection.is_closed()}
        preferred = self._last_used if self._opened else None
        first = [host for host in self._address.hosts if host == preferred]
        others = [host for host in self._address.hosts if host != preferred]
        return [hosts for hosts in (first, others) if hosts]

    async def _open_each(self, hosts: Sequence[str], failures: dict[str, Exception]) -> dict[str, Opened]:
        """Connect to these hosts at the same time. Add the errors of those that fail to `failures`."""
        attempts = {host: asyncio.create_task(self._connect(host), name=f"connect to {host}") for host in hosts}
        try:
            await _until_one_succeeds(set(attempts.values()))
            return await _collect_opened(attempts, failures)
        except asyncio.CancelledError:
            for connection, _ in (await _collect_opened(attempts, failures)).values():
                connection.terminate()
            raise

    def _choose(self, opened: Mapping[str, Opened], failures: dict[str, Exception]) -> DriverConnection | None:
        """Keep the connection to the host of the highest timeline, or the first of several in the URL, and close the others.

        If a higher timeline is known, close this one too, and add the error to `failures`.
        """
        hosts = [host for host in self._address.hosts if host in opened]
        chosen = max(hosts, key=lambda host: opened[host][1].number)
        for host in hosts:
            if host != chosen:
                opened[host][0].terminate()
        connection, timeline = opened[chosen]
        try:
            self.timelines.check(timeline)
        except FormerPrimary as error:
            connection.terminate()
            failures[chosen] = error
            return None
        self._last_used = chosen
        self._opened.add(connection)
        return connection

    async def _connect(self, host: str) -> Opened:
        driver: Any = asyncpg
        is_pooled = self._address.is_pooled
        settings = {"application_name": "peeklock"} | ({} if is_pooled else SETTINGS)
        try:
            with translate_errors():
                connection = await driver.connect(
                    self._address.hosts[host],
                    timeout=self._address.connect_seconds,
                    command_timeout=self._answer_seconds,
                    statement_cache_size=0 if is_pooled else MAX_PREPARED,
                    max_cached_statement_lifetime=0,
                    server_settings=settings,
                    target_session_attrs="read-write",
                    connection_class=KeepAliveConnection,
                )
        except (asyncpg.ClientConfigurationError, asyncpg.UndefinedObjectError) as error:
            reason = "The database URL has an unknown option, or an option has an invalid value"
            # The driver adds a hint on a line of its own.
            raise BadStoreUrl(f"{reason}: {str(error).partition(chr(10))[0].rstrip('.')}.") from error
        connection.keep_alive()
        connection.add_log_listener(connection.note_warning)
        try:
            _check_encoding(connection.get_settings().server_encoding)
        except BadStoreUrl:
            connection.terminate()
            raise
        return connection, await self._timeline_of(connection)

    async def _timeline_of(self, connection: DriverConnection) -> Timeline:
        try:
            with translate_errors():
                async with asyncio.timeout(self._address.connect_seconds):
                    return await read_timeline(connection)
        except BaseException:
            connection.terminate()
            raise

    def _failure(self, failures: Mapping[str, Exception]) -> Exception:
        """Return the error of a connection that no host accepts: an error of the URL, or the reasons of all hosts."""
        for error in failures.values():
            if not isinstance(error, StoreUnavailable):
                return error
        (*_, last) = failures.values()
        former = [error for error in failures.values() if isinstance(error, FormerPrimary)]
        reasons = "; ".join(f"{host}: {self._reason(error)}" for host, error in failures.items())
        failure = StoreUnavailable(str(former[0] if former else last))
        failure.__cause__ = ConnectFailed(reasons)
        return failure

    def _reason(self, error: Exception) -> str:
        if isinstance(error.__cause__, TimeoutError):
            return f"no answer within {self._address.connect_seconds} s"
        if isinstance(error, FormerPrimary):
            return "it is a former primary"
        if isinstance(error.__cause__, asyncpg.TargetServerAttributeNotMatched):
            return "it accepts no writes"
        if isinstance(error.__cause__, ssl.SSLError):
            return _tls_reason(error.__cause__)
        text = str(error.__cause__)
        hints = (hint for part, hint in HINTS.items() if part in text)
        return text + next(hints, "")


def _tls_reason(error: ssl.SSLError) -> str:
    """Return why TLS fails, without the library's codes and lines."""
    if isinstance(error, ssl.SSLCertVerificationError):
        what = (
            "certificate is not for this host"
            if error.verify_code in OTHER_HOST_CODES
            else "certificate is not trusted"
        )
        return f"its {what}: {error.verify_message.rstrip('.')}"
    why = f": {error.reason.lower().replace('_', ' ')}" if error.reason else ""
    return f"TLS fails{why}; check the files of sslrootcert, sslcert and sslkey in the database URL"


def _check_encoding(encoding: str) -> None:
    """Refuse with `BadStoreUrl` a database that cannot hold every character of a message."""
    if encoding != "UTF8":
        raise BadStoreUrl(
            f"The encoding of the database is {encoding}, which does not hold every character. "
            "Create it with ENCODING 'UTF8' TEMPLATE template0."
        )


async def _until_one_succeeds(attempts: set[Attempt]) -> None:
    """Wait until one attempt succeeds or all have failed, and then up to `GRACE_SECONDS` for the others."""
    done: set[Attempt] = set()
    while attempts and all(attempt.exception() for attempt in done):
        done, attempts = await asyncio.wait(attempts, return_when=asyncio.FIRST_COMPLETED)
    if attempts:
        await asyncio.wait(attempts, timeout=GRACE_SECONDS)


async def _collect_opened(attempts: Mapping[str, Attempt], failures: dict[str, Exception]) -> dict[str, Opened]:
    """Cancel the attempts that have not ended. Return the opened connections by host, and add the errors to `failures`."""
    for attempt in attempts.values():
        attempt.cancel()
    opened: dict[str, Opened] = {}
    for host, result in zip(attempts, await asyncio.gather(*attempts.values(), return_exceptions=True), strict=True):
        if isinstance(result, Exception):
            failures[host] = result
        elif not isinstance(result, BaseException):
            opened[host] = result
    return opened


async def connect(address: Address, answer_seconds: float | None = ANSWER_SECONDS) -> DriverConnection:
    """Open one connection, as a new `Connector` does. With `answer_seconds` None, the driver limits no statement."""
    return await Connector(address, answer_seconds)()
