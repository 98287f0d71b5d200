"""PostgreSQL's syntax where engines differ, and its own statements."""

from app.store.shared.digest_columns import DigestKind
from app.store.shared.statements import Dialect

DIALECT = Dialect(
    name="postgresql",
    # A subquery is evaluated once per statement. Otherwise no index could be searched by it.
    now="(SELECT (extract(epoch from clock_timestamp()) * 1000000)::bigint)",
    in_list=r"= ANY(\1::bigint[])",
    in_groups=(
        "((queue_id, group_id) IN "
        r"(SELECT g.queue_id, g.group_id FROM json_to_recordset(\1::json) AS g (queue_id int, group_id text)) IS TRUE)"
    ),
    for_update="FOR UPDATE",
    skip_locked="FOR UPDATE SKIP LOCKED",
    delete_first="""DELETE FROM {table} WHERE ctid = ANY(ARRAY(
SELECT ctid FROM {table}{rows}
FOR UPDATE SKIP LOCKED
))""",
    # The planner takes no hints. Where the order matters, PostgreSQL has statements of its own.
    then_join="JOIN",
    # It writes to the write-ahead log, after everything that was read, so the commit waits for both. Without standbys it
    # writes nothing.
    replicated=(
        "(current_setting('synchronous_standby_names') = '' "
        "OR pg_logical_emit_message(true, 'peeklock', '') IS NOT NULL)"
    ),
    digest_terms={
        DigestKind.NUMBER: "coalesce(length({0}::text) || ':' || {0}, '-')",
        DigestKind.TEXT: "coalesce(octet_length(convert_to({0}, 'UTF8')) || ':' || {0}, '-')",
        DigestKind.BYTES: "coalesce(2 * length({0}) || ':' || encode({0}, 'hex'), '-')",
        DigestKind.BODY: "'64:' || encode(sha256({0}), 'hex')",
    },
    row_digest=("encode(sha256(convert_to(", " || ", ", 'UTF8')), 'hex')"),
)
