"""The settings of a server, read once from `PEEKLOCK_*`. Backends receive values, never settings."""

import re
from ipaddress import IPv6Address, ip_address
from pathlib import Path
from typing import Literal
from urllib.parse import quote

from pydantic import Field, HttpUrl, SecretStr, field_validator
from pydantic_settings import BaseSettings, SettingsConfigDict

from app.domain.instant import to_seconds
from app.domain.public_address import PublicAddress, parse_networks, parse_root_path
from app.domain.queue import MAX_ARCHIVE_RETENTION
from app.domain.state import DEFAULT_RETENTION
from app.domain.transaction import MAX_OPEN_TRANSACTIONS, OPEN_TRANSACTIONS_PER_PRINCIPAL
from app.domain.weight import MAX_RESPONSE_BYTES

ORIGIN = re.compile(r"https?://[a-z0-9.-]+(?::[0-9]{1,5})?|https?://\[[0-9a-f:]+\](?::[0-9]{1,5})?")
"""A web origin as browsers write it: in lower case, without a path."""

MIN_SQS_SECRET_LENGTH = 32
"""Characters that a person cannot choose well, but a program can. It limits no request."""


class Settings(BaseSettings):
    """The settings of one server. `peeklock serve --help` prints these descriptions."""

    model_config = SettingsConfigDict(env_prefix="PEEKLOCK_", env_ignore_empty=True, extra="ignore")

    host: str = Field(
        default="127.0.0.1", description="Address to listen on. Every address but loopback needs an API key."
    )
    port: int = Field(default=8080, ge=0, le=65535, description="Port to listen on. 0 takes a free port.")
    data_dir: Path = Field(
        default=Path("data"), description="Directory of the SQLite database. Used without a database URL."
    )
    database_url: SecretStr | None = Field(
        default=None,
        description="postgresql://, mysql:// or sqlite:/// URL. Without one the server uses SQLite in the data directory.",
    )
    require_durable_store: bool = Field(
        default=False,
        description="Answer durable sends with 503 while the database, as it is set, may lose acknowledged messages.",
    )
    redis_url: SecretStr | None = Field(
        default=None,
        description="redis:// URL of the shared lock store. Without one this must be the only server process.",
    )
    redis_timeout_seconds: float = Field(
        default=0.2,
        gt=0,
        le=10,
        description="Timeout of Redis in seconds. After it a request continues without Redis.",
    )
    redis_prefix: str = Field(default="peeklock:", description="Prefix of all keys in Redis.")
    workers: int = Field(default=1, ge=1, le=64, description="Number of server processes. More than one needs Redis.")
    auto_create_queues: bool | None = Field(
        default=None,
        description="Create a queue on the first send to it. By default only with the embedded SQLite database.",
    )
    max_queues: int = Field(
        default=1000,
        ge=1,
        le=1_000_000,
        description="Maximum number of queues. Above it a new queue is refused with 409.",
    )
    max_transactions_per_principal: int = Field(
        default=OPEN_TRANSACTIONS_PER_PRINCIPAL,
        ge=1,
        le=MAX_OPEN_TRANSACTIONS,
        description="Maximum number of open transactions of one principal. Above it a new one is refused with 409.",
    )
    cors_origins: str = Field(
        default="",
        description="Origins of web pages that may use the server, separated by commas, such as https://shop.example. "
        "By default pages of other sites may not.",
    )
    root_path: str = Field(
        default="",
        description="Path below which clients find the server behind a proxy, such as /peeklock. The proxy may pass it on or "
        "remove it. Paths in answers begin with it.",
    )
    trusted_proxies: str = Field(
        default="",
        description="Addresses and networks of proxies, separated by commas, such as 10.0.0.0/8. Their X-Forwarded-Proto, "
        "X-Forwarded-Host and X-Forwarded-Prefix are used. Those of other clients are ignored.",
    )
    console: bool = Field(default=True, description="Serve the console for people at /console.")
    console_report_url: HttpUrl | None = Field(
        default=None, description="URL of a report of the data pipeline, to which the console links."
    )
    guide_dir: Path | None = Field(
        default=None,
        description="Directory of the built documentation, which is then served at /docs/guide. By default it is not.",
    )
    sqs: bool = Field(default=True, description="Serve the interface of Amazon SQS on the same port.")
    sqs_secret: SecretStr | None = Field(
        default=None,
        description="Secret of at least 32 characters from which the SQS secrets of API keys are derived. Every server needs the "
        "same. Without one, SQS requests are accepted only while no API key is needed.",
    )
    sqs_url: str | None = Field(
        default=None,
        description="URL with which URLs of queues begin, such as https://mq.example. By default that of the request.",
    )
    metrics_key: SecretStr | None = Field(
        default=None,
        description="Bearer token with which /metrics shows queue names. An API key that may browse every queue works too.",
    )
    metrics_per_queue: bool = Field(
        default=True,
        description="Show series for each of the first 1,000 queues in /metrics, to callers that may see queue names.",
    )
    database_connections: int = Field(default=8, ge=2, le=200, description="Database connections per process.")
    long_poll_cap_seconds: float = Field(
        default=50,
        ge=0,
        le=3600,
        description="Longest wait of a receive in seconds. Keep it below the timeout of the proxy.",
    )
    max_filtered_receivers: int = Field(
        default=200,
        ge=1,
        le=10_000,
        description="Maximum receivers with a filter at a time per process. One more is answered 429.",
    )
    max_connections: int = Field(
        default=500,
        ge=1,
        le=100_000,
        description="Maximum connections per process. A request on a connection above the limit is answered 503.",
    )
    max_request_bytes: int = Field(
        default=16 << 20, ge=1 << 10, description="Maximum bytes of a request body, counted while it streams."
    )
    max_answer_bytes: int = Field(
        default=MAX_RESPONSE_BYTES,
        ge=64 << 10,
        description="Maximum bytes of messages in one answer. A larger message is answered alone.",
    )
    max_request_bytes_in_flight: int = Field(
        default=64 << 20,
        ge=1 << 20,
        description="Maximum bytes of request bodies that a process holds at a time. Above it requests are answered 503. "
        "Bodies up to 64 KiB do not count. The limit is at least PEEKLOCK_MAX_REQUEST_BYTES plus 2 MiB.",
    )
    max_answer_bytes_in_flight: int = Field(
        default=64 << 20,
        ge=1 << 20,
        description="Maximum bytes of messages that a process reads for answers and writes to slow clients at a time. "
        "Above it receives and reads wait up to five seconds and are then answered 503.",
    )
    max_volatile_bytes: int = Field(
        default=32 << 20,
        ge=1 << 10,
        description="Maximum bytes of volatile messages that wait to be stored. Above it volatile sends are answered 429.",
    )
    sweep_interval_seconds: float = Field(
        default=1, gt=0, le=60, description="Seconds between searches for expired locks."
    )
    seal_interval_seconds: float = Field(
        default=10, gt=0, le=3600, description="Seconds that ended messages gather before they are sealed for export."
    )
    state_retention_seconds: float = Field(
        default=to_seconds(DEFAULT_RETENTION),
        ge=60,
        le=to_seconds(MAX_ARCHIVE_RETENTION),
        description="Seconds that a version of a state is kept after the next one. So long its duplicates are recognised.",
    )
    shutdown_grace_seconds: float = Field(
        default=30, ge=0, le=600, description="Seconds that a stop waits for open requests."
    )
    log_format: Literal["text", "json"] | None = Field(
        default=None, description="Format of log lines: text or json. By default text on a terminal, elsewhere json."
    )
    log_level: Literal["debug", "info", "warning", "error"] = Field(
        default="info", description="Lowest level that is logged: debug, info, warning or error."
    )
    bootstrap_key: SecretStr | None = Field(
        default=None, description="An API key with every right. It is stored at the start if it does not exist yet."
    )
    insecure_no_auth: bool = Field(
        default=False, description="Serve beyond loopback without API keys. Every client may then do everything."
    )

    @field_validator("host")
    @classmethod
    def _read_host(cls, value: str) -> str:
        return _listen_host(value)

    @field_validator("cors_origins")
    @classmethod
    def _check_origins(cls, value: str) -> str:
        for origin in _split_origins(value):
            if ORIGIN.fullmatch(origin) is None:
                raise ValueError(f"{origin} is not an origin, such as https://shop.example or http://localhost:3000")
        return value

    @field_validator("root_path")
    @classmethod
    def _check_root_path(cls, value: str) -> str:
        return parse_root_path(value)

    @field_validator("trusted_proxies")
    @classmethod
    def _check_proxies(cls, value: str) -> str:
        parse_networks(value)
        return value

    @field_validator("sqs_secret")
    @classmethod
    def _check_sqs_secret(cls, value: SecretStr | None) -> SecretStr | None:
        if value is not None and len(value.get_secret_value()) < MIN_SQS_SECRET_LENGTH:
            raise ValueError(
                f"The secret has at least {MIN_SQS_SECRET_LENGTH} characters, such as of `openssl rand -hex 32`."
            )
        return value

    @field_validator("sqs_url")
    @classmethod
    def _check_sqs_url(cls, value: str | None) -> str | None:
        return None if value is None else _parse_public_url(value)

    @property
    def public_address(self) -> PublicAddress:
        """Where clients find the server, and the proxies in front of it that are trusted."""
        return PublicAddress(self.root_path, parse_networks(self.trusted_proxies))

    @property
    def allowed_origins(self) -> list[str]:
        """The origins of web pages that may use the server."""
        return _split_origins(self.cors_origins)

    @property
    def is_embedded(self) -> bool:
        """Whether the server uses its embedded database in the data directory."""
        return self.database_url is None

    @property
    def is_loopback(self) -> bool:
        """Whether only programs on this machine can reach the server."""
        try:
            return ip_address(self.host).is_loopback
        except ValueError:
            return self.host == "localhost"

    @property
    def store_url(self) -> str:
        """The database URL; by default that of the embedded database."""
        if self.database_url is not None:
            return self.database_url.get_secret_value()
        return f"sqlite:///{quote(str(self.data_dir / 'peeklock.db'))}"

    @property
    def creates_queues(self) -> bool:
        """Whether the first send to a queue creates it."""
        return self.is_embedded if self.auto_create_queues is None else self.auto_create_queues


def _listen_host(text: str) -> str:
    """Return an address without the brackets of URLs, and a loopback address without its zone, which has no meaning.

    Any other text is a name, which is looked up when the server listens.
    """
    try:
        address = ip_address(text[1:-1] if text.startswith("[") and text.endswith("]") else text)
    except ValueError:
        return text.lower()
    if isinstance(address, IPv6Address) and address.is_loopback:
        return "::1"
    return str(address)


def _parse_public_url(text: str) -> str:
    """Return a URL without a slash at its end: an origin, and perhaps a root path. Raises `ValueError`."""
    origin = ORIGIN.match(text)
    if origin is None or text[origin.end() : origin.end() + 1] not in ("", "/"):
        raise ValueError(f"{text} is not the URL of a server, such as https://mq.example")
    return origin.group() + parse_root_path(text[origin.end() :])


def _split_origins(text: str) -> list[str]:
    return [origin.strip() for origin in text.split(",") if origin.strip()]
