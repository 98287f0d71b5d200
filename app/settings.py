"""Every knob of a server, read once from `PEEKLOCK_*`; rooms receive values, never settings."""

from pathlib import Path
from typing import Literal

from pydantic import Field, SecretStr
from pydantic_settings import BaseSettings, SettingsConfigDict

from app.domain.weight import MAX_RESPONSE_BYTES


class Settings(BaseSettings):
    """The settings of one server; `peeklock serve --help` lists them with these descriptions."""

    model_config = SettingsConfigDict(env_prefix="PEEKLOCK_", env_ignore_empty=True, extra="ignore")

    host: str = Field(default="127.0.0.1", description="Address to listen on; anything but loopback needs an API key.")
    port: int = Field(default=8080, ge=0, le=65535, description="Port to listen on; 0 takes a free one.")
    data_dir: Path = Field(
        default=Path("data"), description="Where the SQLite database lies when no database URL is given."
    )
    database_url: SecretStr | None = Field(
        default=None, description="postgresql://, mysql:// or sqlite:/// URL; without one SQLite in the data directory."
    )
    redis_url: SecretStr | None = Field(
        default=None, description="redis:// URL of the shared lock store; without one this must be the only process."
    )
    redis_timeout_seconds: float = Field(
        default=0.2,
        gt=0,
        le=10,
        description="How long Redis may take to answer; after that the request goes on without Redis.",
    )
    redis_prefix: str = Field(default="peeklock:", description="What the names of all its Redis keys begin with.")
    workers: int = Field(default=1, ge=1, le=64, description="Server processes; more than one needs Redis.")
    auto_create_queues: bool | None = Field(
        default=None, description="Make a queue on first send; on by default with the embedded SQLite database only."
    )
    max_queues: int = Field(
        default=1000,
        ge=1,
        le=1_000_000,
        description="Most queues; above this a new queue is refused with 409.",
    )
    metrics_key: SecretStr | None = Field(
        default=None,
        description="Bearer token with which /metrics names queues; an API key that may browse every queue does too.",
    )
    metrics_per_queue: bool = Field(
        default=True,
        description="Whether /metrics has series for each of the first 1,000 queues, for callers that may see their names.",
    )
    database_connections: int = Field(default=8, ge=2, le=200, description="Database connections of each process.")
    long_poll_cap_seconds: float = Field(
        default=50, ge=0, le=3600, description="Longest wait of a receive; keep it below the proxy's own limit."
    )
    max_filtered_receivers: int = Field(
        default=200,
        ge=1,
        le=10_000,
        description="Most receivers with a filter at once in each process; one more is answered 429.",
    )
    max_connections: int = Field(
        default=500,
        ge=1,
        le=100_000,
        description="Connections that a process serves; a request on one above it is answered 503.",
    )
    max_request_bytes: int = Field(
        default=16 << 20, ge=1 << 10, description="Largest request body, counted while it streams."
    )
    max_answer_bytes: int = Field(
        default=MAX_RESPONSE_BYTES,
        ge=64 << 10,
        description="Most bytes of messages in one answer; a larger message comes alone.",
    )
    max_request_bytes_in_flight: int = Field(
        default=64 << 20,
        ge=1 << 20,
        description="Bytes of request bodies that a process holds at a time; above it requests are answered 503. "
        "Bodies up to 64 KiB do not count. It is never less than PEEKLOCK_MAX_REQUEST_BYTES.",
    )
    max_answer_bytes_in_flight: int = Field(
        default=64 << 20,
        ge=1 << 20,
        description="Bytes of messages that a process reads for answers and writes to slow clients at a time; "
        "above it receives and reads wait up to five seconds and are then answered 503.",
    )
    max_volatile_bytes: int = Field(
        default=32 << 20,
        ge=1 << 10,
        description="Bytes of volatile messages that wait to be stored; above it volatile sends are answered 429.",
    )
    sweep_interval_seconds: float = Field(default=1, gt=0, le=60, description="How often ended locks are looked for.")
    seal_interval_seconds: float = Field(
        default=10, gt=0, le=3600, description="How long ended messages gather before they are sealed for export."
    )
    shutdown_grace_seconds: float = Field(
        default=30, ge=0, le=600, description="How long a stop waits for open requests."
    )
    log_format: Literal["text", "json"] = Field(default="json", description="How log lines look.")
    log_level: Literal["debug", "info", "warning", "error"] = Field(default="info", description="What is logged.")
    bootstrap_key: SecretStr | None = Field(
        default=None, description="An API key with every right, stored at start if it is not there yet."
    )
    insecure_no_auth: bool = Field(
        default=False, description="Serve beyond loopback without API keys. Anybody may do anything."
    )

    @property
    def is_embedded(self) -> bool:
        """Whether the server keeps a database of its own in the data directory."""
        return self.database_url is None

    @property
    def is_loopback(self) -> bool:
        """Whether only programs on this machine can reach the address that is listened on."""
        return self.host in ("localhost", "::1") or self.host.startswith("127.")

    @property
    def store_url(self) -> str:
        """The database URL, of the embedded database where none was given."""
        if self.database_url is not None:
            return self.database_url.get_secret_value()
        return f"sqlite:///{self.data_dir / 'peeklock.db'}"

    @property
    def creates_queues(self) -> bool:
        """Whether a first send makes its queue."""
        return self.is_embedded if self.auto_create_queues is None else self.auto_create_queues
