"""The Lua scripts, read once, each with the SHA-1 digest that names it in Redis."""

from dataclasses import dataclass
from hashlib import sha1
from pathlib import Path

SCRIPTS_DIRECTORY = Path(__file__).with_name("scripts")


@dataclass(frozen=True, slots=True, eq=False)
class Script:
    """One script: its whole text, and its SHA-1 for EVALSHA."""

    name: str
    text: str
    digest: str


def script(name: str, own: str) -> Script:
    """Return the script of this name: the shared beginning (`records.lua`), then its own text."""
    text = (SCRIPTS_DIRECTORY / "records.lua").read_text() + "\n" + own
    return Script(name, text, sha1(text.encode(), usedforsecurity=False).hexdigest())


def _load(name: str) -> Script:
    return script(name, (SCRIPTS_DIRECTORY / f"{name}.lua").read_text())


def _load_of_consumers(name: str) -> Script:
    return script(name, "\n".join((SCRIPTS_DIRECTORY / f"{part}.lua").read_text() for part in ("consumers", name)))


RENEW = _load("renew")
RECORD = _load("record")
EXPIRED_GENERATIONS = _load("expired_generations")
PROMISES = _load("promises")
DROP = _load("drop")
EXPIRED = _load("expired")
ACQUIRE_PREFIX = _load("own")
RAISE = _load("raise")
REPORT = _load("report")
REPORT_CONSUMER = _load_of_consumers("report_consumer")
LIST_CONSUMERS = _load_of_consumers("list_consumers")
