"""Reads the URL of a Redis: one server, a socket, the master of a Sentinel service, or a cluster."""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import SplitResult, parse_qsl, unquote, urlsplit

EXAMPLES = (
    "redis://user:password@host:6379/0, unix:///path/to/socket, redis+sentinel://host:26379,host:26379/service or "
    "redis+cluster://host:6379,host:6379; rediss://, rediss+sentinel:// and rediss+cluster:// use TLS"
)

SERVER, SENTINEL, CLUSTER, SOCKET = "redis", "redis+sentinel", "redis+cluster", "unix"
TLS_SCHEMES = {"rediss": SERVER, "rediss+sentinel": SENTINEL, "rediss+cluster": CLUSTER}
DEFAULT_PORTS = {SERVER: 6379, SENTINEL: 26379, CLUSTER: 6379}

DATABASE = re.compile(r"[0-9]{1,6}", re.ASCII)
PORT = re.compile(r"[0-9]{1,5}", re.ASCII)


class BadLockUrl(ValueError):
    """The URL names no usable Redis. The text never quotes the URL, which may contain a password."""


def _certificates(text: str) -> str:
    if text not in ("none", "optional", "required"):
        raise ValueError(text)
    return text


def _truth(text: str) -> bool:
    return {"true": True, "false": False}[text]


CREDENTIAL_OPTIONS = ("username", "password")
SENTINEL_OPTIONS = ("sentinel_username", "sentinel_password")
TLS_OPTIONS: Mapping[str, Callable[[str], Any]] = {
    "ssl_ca_certs": str,
    "ssl_certfile": str,
    "ssl_keyfile": str,
    "ssl_cert_reqs": _certificates,
    "ssl_check_hostname": _truth,
}
"""Options of a URL with TLS, each with the function that reads its value."""


@dataclass(frozen=True, slots=True)
class RedisUrl:
    """The parts of a URL. Passwords are decoded.

    `kind` is the scheme without TLS. `hosts` is empty for a socket. `credentials` and `sentinel_credentials` have at most
    `username` and `password`, `tls` has options of redis-py, and `ssl` if TLS is used.
    """

    kind: str
    hosts: list[tuple[str, int]]
    socket: str
    service: str
    database: int
    credentials: dict[str, str]
    sentinel_credentials: dict[str, str]
    tls: dict[str, Any]

    @classmethod
    def parse(cls, url: str) -> "RedisUrl":
        """Read a URL. Refuses with `BadLockUrl` a URL that names no Redis, and every unknown option."""
        try:
            return _read(urlsplit(url))
        except BadLockUrl:
            raise
        except (ValueError, KeyError):
            raise BadLockUrl(f"This names no Redis; write a URL like {EXAMPLES}.") from None


def _read(parts: SplitResult) -> RedisUrl:
    has_tls = parts.scheme in TLS_SCHEMES
    kind = TLS_SCHEMES.get(parts.scheme, parts.scheme)
    if kind not in (SERVER, SENTINEL, CLUSTER, SOCKET) or parts.fragment:
        raise ValueError(kind)
    options = _options(parts.query, kind, has_tls=has_tls)
    user_info, _, hosts = parts.netloc.rpartition("@")
    username, _, password = map(unquote, user_info.partition(":"))
    written = {"username": username, "password": password}
    credentials = {name: text for name in CREDENTIAL_OPTIONS if (text := written[name] or options.get(name, ""))}
    tls = {name: TLS_OPTIONS[name](text) for name, text in options.items() if name in TLS_OPTIONS}
    service, database = _path(parts.path, kind, options.get("db"))
    return RedisUrl(
        kind,
        _hosts(hosts, kind),
        _socket_path(parts) if kind == SOCKET else "",
        service,
        database,
        credentials,
        {name.removeprefix("sentinel_"): options[name] for name in SENTINEL_OPTIONS if name in options},
        # Without a certificate, no host name can be checked.
        {"ssl": True, "ssl_check_hostname": tls.get("ssl_cert_reqs") != "none", **tls} if has_tls else {},
    )


def _options(query: str, kind: str, *, has_tls: bool) -> dict[str, str]:
    """Return the options of a URL. A refusal does not quote an unknown option, which may be part of a password with a `?`."""
    known = [*CREDENTIAL_OPTIONS]
    known += ["db"] if kind != CLUSTER else []
    known += SENTINEL_OPTIONS if kind == SENTINEL else []
    known += TLS_OPTIONS if has_tls else []
    pairs = parse_qsl(query, keep_blank_values=True, strict_parsing=True) if query else []
    options = dict(pairs)
    if len(options) < len(pairs) or not options.keys() <= set(known):
        raise BadLockUrl(
            f"It has an unknown option, or the same option twice. The options of such a URL are {', '.join(known)}. "
            "Write ? as %3F and # as %23 in a password."
        )
    return options


def _path(path: str, kind: str, database: str | None) -> tuple[str, int]:
    """Return the service and the number of the database."""
    if kind == SOCKET:
        return "", _database(database or "0")
    steps = [unquote(step) for step in path.split("/")[1:] if step]
    service = ""
    if kind == SENTINEL:
        if not steps:
            raise BadLockUrl(f"A URL {SENTINEL}://host:port,host:port/service[/db] names its service.")
        service = steps.pop(0)
    if kind == CLUSTER and steps == ["0"]:
        return "", 0
    if len(steps) > (kind != CLUSTER and database is None):
        raise ValueError(path)
    return service, _database(steps[0] if steps else database or "0")


def _database(text: str) -> int:
    if not DATABASE.fullmatch(text):
        raise ValueError(text)
    return int(text)


def _hosts(text: str, kind: str) -> list[tuple[str, int]]:
    if kind == SOCKET:
        return []
    hosts = text.split(",")
    if kind == SERVER and len(hosts) > 1:
        raise ValueError(text)
    return [_address(host, DEFAULT_PORTS[kind]) for host in hosts]


def _address(host: str, default_port: int) -> tuple[str, int]:
    """Read `host`, `host:port` or `[address]:port`."""
    parts = urlsplit(f"//{host}")
    if not parts.hostname:
        raise BadLockUrl("A Redis URL names an empty host.")
    _, _, port = host.rpartition("]")[2].partition(":")
    if port and not PORT.fullmatch(port):
        raise ValueError(port)
    return parts.hostname, parts.port or default_port


def _socket_path(parts: SplitResult) -> str:
    if not parts.path or parts.netloc.rpartition("@")[2]:
        raise ValueError(parts.path)
    return unquote(parts.path)
