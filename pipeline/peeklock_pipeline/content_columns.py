"""The body of a message in a statement, and the digests that a database computes, so that an audit reads no bodies."""

from peeklock_pipeline.drivers import Engine

BODY = """CASE WHEN {0}shared_body_id IS NULL THEN {0}body ELSE (
    SELECT shared.body FROM shared_body shared WHERE shared.id = {0}shared_body_id
) END"""
"""The body of a message: its own, or the one that it shares with others."""
BODY_OF_ROW = BODY.format("")


def value_in_batch(name: str) -> str:
    """Return a column of an archived message `a`; the batch is in its seal `s`."""
    if name == "body":
        return f"{BODY.format('a.')} AS body"
    return name_in_batch(name)


def name_in_batch(name: str) -> str:
    """Return the qualified name of a column of an archived message `a`; the batch is in its seal `s`."""
    return f"s.{name}" if name == "export_batch" else f"a.{name}"


def value_in_queue(name: str) -> str:
    """Return a column of a message `m` in a queue `q`."""
    if name == "body":
        return f"{BODY.format('m.')} AS body"
    return "q.name AS queue" if name == "queue" else f"m.{name}"


def _content_postgresql() -> str:
    texts = [
        f"coalesce(octet_length(convert_to({name}, 'UTF8')) || ':' || {name}, '-')"
        for name in ("message_id", "group_id", "headers")
    ]
    length = "coalesce(shared_body_bytes, octet_length(body)) || ':'"
    fields = " || ".join([*texts, "length(body_kind::text) || ':' || body_kind", length])
    return f"substr(encode(sha256(convert_to({fields}, 'UTF8') || {BODY_OF_ROW}), 'hex'), 1, 32)"


def _content_mysql() -> str:
    texts = [
        f"COALESCE(CONCAT(LENGTH({name}), ':', CAST({name} AS BINARY)), '-')"
        for name in ("message_id", "group_id", "headers")
    ]
    length = "COALESCE(shared_body_bytes, LENGTH(body))"
    fields = ", ".join([*texts, "LENGTH(body_kind)", "':'", "body_kind", length, "':'", BODY_OF_ROW])
    return f"LEFT(SHA2(CONCAT({fields}), 256), 32)"


HASHED_COLUMNS = {
    Engine.POSTGRESQL: {
        "body_sha256": f"encode(sha256({BODY_OF_ROW}), 'hex')",
        "content_found": _content_postgresql(),
    },
    Engine.MYSQL: {"body_sha256": f"SHA2({BODY_OF_ROW}, 256)", "content_found": _content_mysql()},
    Engine.SQLITE: {"body": BODY_OF_ROW},
}
"""The digests that an engine computes, so that the body stays in the database. SQLite has no function for it, so it gives
the body."""

AUDIT_SKIPPED_COLUMNS = {
    Engine.POSTGRESQL: ("body",),
    Engine.MYSQL: ("body",),
    Engine.SQLITE: ("body_sha256", "content_found"),
}
"""Columns that an audit does not read from an engine."""
