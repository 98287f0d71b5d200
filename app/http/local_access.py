"""Checks of requests to a server that needs no API key. They stop web pages from sending requests through a browser.

A browser sends the requests of a page from the machine of the person who views it. A request to this server can come
from any page on the web, as a form or as a `fetch` that needs no permission. It can also look like a request to the
page's own site, once the host name of that site resolves to a loopback address (DNS rebinding).
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from ipaddress import AddressValueError, IPv4Address
from urllib.parse import urlsplit

from app.wire.media_types import is_json_media_type

LOCAL_ADMIN = "Peeklock-Local-Admin"
"""The header that a client without an API key sends to create or revoke one. No HTML form can send it."""

FORM_CONTENT_TYPES = ("", "application/x-www-form-urlencoded", "multipart/form-data", "text/plain")
"""The content types that a browser sends without asking for permission. curl sends the second by default."""

DEFAULT_PORTS = {"http": 80, "https": 443}

KEY_ADVICE = "make an API key with `peeklock key create` and send it as `Authorization: Bearer`"
HOST_NOT_LOCAL = (
    "This server listens on loopback and needs no API key, so the Host of a request is localhost, [::1] or an "
    f"address of 127.0.0.0/8. Use one of them, or {KEY_ADVICE}."
)
CROSS_SITE = (
    "This server needs no API key, so pages of other sites may not use it. List the origin of such a page in "
    f"PEEKLOCK_CORS_ORIGINS, or {KEY_ADVICE}."
)
FORM_FROM_PAGE = f"This server needs no API key, so it takes no form from a web page. Send the body as application/json, or {KEY_ADVICE}."
NOT_JSON = (
    f"This server needs no API key, so the body of this call is JSON. Send it as application/json, or {KEY_ADVICE}."
)
KEY_FROM_PAGE = (
    "Without an API key, a page of another site makes and revokes none: its key would outlast the listing of its origin. "
    "Use `peeklock key` on this machine."
)
NO_ADMIN_HEADER = (
    "This server needs no API key yet. To make or revoke a key without one, use `peeklock key` on this machine, or send "
    f"the header `{LOCAL_ADMIN}: true`."
)


@dataclass(frozen=True, slots=True)
class LocalAccessPolicy:
    """What one operation requires of a request without an API key.

    `requires_local_host`: the Host must name this machine. `requires_json`: a body must be JSON; otherwise it may have
    any type. `requires_admin_header`: the request must have the header `LOCAL_ADMIN`, and come from no page of another
    site. `allowed_origins`: the other sites whose pages may send other requests, as they may send them with an API key.
    """

    requires_local_host: bool
    requires_json: bool
    requires_admin_header: bool
    allowed_origins: frozenset[bytes] = frozenset()

    def violation(self, header_values: Mapping[bytes, bytes]) -> str | None:
        """Return why a request with these headers is refused and what to do instead, None if it is accepted."""
        if violation := self.origin_violation(header_values):
            return violation
        if has_body(header_values):
            content_type = header_values.get(b"content-type", b"").decode("latin-1")
            if violation := self._body_violation(content_type, from_page=b"origin" in header_values):
                return violation
        if self.requires_admin_header and self._is_cross_site(header_values):
            return KEY_FROM_PAGE
        if self.requires_admin_header and header_values.get(LOCAL_ADMIN.lower().encode()) != b"true":
            return NO_ADMIN_HEADER
        return None

    def origin_violation(self, header_values: Mapping[bytes, bytes]) -> str | None:
        """Return why the host or the origin of a request is refused and what to do instead, None if both are accepted."""
        if self.requires_local_host and not is_loopback_host(_host(header_values)):
            return HOST_NOT_LOCAL
        if header_values.get(b"origin") not in self.allowed_origins and self._is_cross_site(header_values):
            return CROSS_SITE
        return None

    @staticmethod
    def _is_cross_site(header_values: Mapping[bytes, bytes]) -> bool:
        if header_values.get(b"sec-fetch-site") in (b"cross-site", b"same-site"):
            return True
        origin = header_values.get(b"origin")
        return origin is not None and not is_same_origin(origin.decode("latin-1").lower(), _host(header_values))

    def _body_violation(self, content_type: str, *, from_page: bool) -> str | None:
        if content_type.partition(";")[0].strip().lower() in FORM_CONTENT_TYPES:
            return FORM_FROM_PAGE if from_page else None
        return NOT_JSON if self.requires_json and not is_json_media_type(content_type) else None


@lru_cache(maxsize=64)
def is_loopback_host(host: str) -> bool:
    """Return whether a Host in lower case names this machine, with any port."""
    name, colon, port = host.rpartition(":")
    if not colon or host.endswith("]"):
        name, port = host, ""
    if port and not (port.isascii() and port.isdigit()):
        return False
    return name in ("localhost", "[::1]") or _is_loopback_address(name)


def is_same_origin(origin: str, host: str) -> bool:
    """Return whether an Origin has the host and port of a Host, both in lower case. The Origin `null` has none."""
    try:
        origin_url, host_url = urlsplit(origin), urlsplit(f"//{host}")
        default = DEFAULT_PORTS[origin_url.scheme]
        if origin != f"{origin_url.scheme}://{origin_url.netloc}" or "@" in origin_url.netloc:
            return False
        return (origin_url.hostname, origin_url.port or default) == (host_url.hostname, host_url.port or default)
    except (KeyError, ValueError):
        return False


def has_body(headers: Mapping[bytes, bytes]) -> bool:
    """Return whether a request has a body (RFC 9112, 6)."""
    return b"transfer-encoding" in headers or headers.get(b"content-length", b"0").lstrip(b"0") != b""


def _host(header_values: Mapping[bytes, bytes]) -> str:
    return header_values.get(b"host", b"").decode("latin-1").lower()


def _is_loopback_address(name: str) -> bool:
    try:
        return IPv4Address(name).is_loopback
    except AddressValueError:
        return False
