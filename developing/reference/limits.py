"""The page of limits: settings that limit, the ranges of fields, and limits that no setting changes."""

from __future__ import annotations

import re
from collections.abc import Mapping

from developing.reference import markdown, words
from developing.reference.contract import constants, fields, settings

INTRODUCTION = """
A queue has two limits of its own: `max_message_bytes` and `max_messages`. The limits in bytes and in connections hold
for each process. [Deploying](../deploy.md) explains how they add up.
"""
NO_LIMITS = frozenset(
    f"PEEKLOCK_{name}"
    for name in (
        "PORT", "WORKERS", "DATABASE_CONNECTIONS", "REDIS_TIMEOUT_SECONDS", "SWEEP_INTERVAL_SECONDS",
        "SEAL_INTERVAL_SECONDS", "STATE_RETENTION_SECONDS",
    )
)  # fmt: skip
"""Settings that are numbers and limit no request."""

PLACE = re.compile(r"\{([a-z_]+\.[A-Z_]+)(?::([a-z]+))?\}")
"""A constant in a limit, by its module's own name and its name, and the form in which it is written."""


def page() -> str:
    """Return the page with its three tables."""
    return markdown.page(
        "Limits",
        INTRODUCTION,
        "## Settings of a server",
        "[Settings](settings.md) describes them.",
        _settings_table(),
        "## Fields",
        "A value outside its range is refused with 422 `invalid-request`. `where` names [types](http-types.md).",
        _fields_table(),
        "## Fixed limits",
        _fixed_table(),
    )


def named_constants() -> set[str]:
    """Return the constants that the fixed limits name."""
    return {found[1] for limit in words.WORDS["limits"] for found in PLACE.finditer(limit["limit"])}


def _settings_table() -> str:
    limiting = {name: limit for name, limit in settings().items() if name not in NO_LIMITS}
    beyond = words.of(words.WORDS, "settings", limiting)
    rows = [(f"`{name}`", default, range_, beyond[name]) for name, (default, range_) in limiting.items()]
    return markdown.table(("setting", "default", "range", "beyond it"), rows)


def _fields_table() -> str:
    rows = sorted(((name, where, range_) for (name, range_), where in fields().items()), key=_by_name)
    return markdown.table(("field", "where", "range"), [(f"`{name}`", where, range_) for name, where, range_ in rows])


def _fixed_table() -> str:
    known = constants()
    rows = [
        (limit["what"], PLACE.sub(lambda found: _written(known, found), limit["limit"]), limit["beyond"])
        for limit in words.WORDS["limits"]
    ]
    return markdown.table(("what", "limit", "beyond it"), rows)


def _by_name(row: tuple[str, str, str]) -> tuple[str, str, str]:
    return row[0].lower(), row[1], row[2]


def _written(known: Mapping[str, float], found: re.Match[str]) -> str:
    """Return a constant as the page writes it: a size, hours or minutes of microseconds, or a number."""
    value = known[found[1]]
    if found[2] == "size":
        mebibytes, rest = divmod(int(value), 1 << 20)
        return f"{int(value) >> 10} KiB" if rest else f"{mebibytes} MiB"
    if found[2] == "hours":
        return f"{value / 3_600_000_000:g}"
    if found[2] == "minutes":
        return f"{value / 60_000_000:g}"
    return format(value, found[2] or "")
