"""MariaDB's and MySQL's syntax where engines differ, and their own statements."""

from app.store.shared.digest_columns import DigestKind
from app.store.shared.statements import Dialect

DIALECT = Dialect(
    name="mysql",
    # Exact, and independent of the session's time zone, unlike UNIX_TIMESTAMP.
    now="TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6))",
    in_list=r"IN \1",
    in_groups=r"""((queue_id, group_id) IN (
    SELECT g.queue_id, g.group_id
    FROM JSON_TABLE(\1, '$[*]' COLUMNS (
        queue_id INT PATH '$.queue_id',
        group_id VARCHAR(128) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin PATH '$.group_id'
    )) AS g
) IS TRUE)""",
    for_update="FOR UPDATE",
    skip_locked="FOR UPDATE SKIP LOCKED",
    delete_first="""DELETE {table}
FROM (SELECT {key} FROM {table}{rows}
FOR UPDATE SKIP LOCKED) AS first_rows
STRAIGHT_JOIN {table} FORCE INDEX (PRIMARY) ON {same_key}""",
    then_join="STRAIGHT_JOIN",
    index=r" FORCE INDEX (\1)",
    # `FORCE INDEX` already keeps the planner from choosing another index.
    unindexed=r"\1",
    digest_terms={
        DigestKind.NUMBER: "COALESCE(CONCAT(LENGTH({0}), ':', {0}), '-')",
        DigestKind.TEXT: "COALESCE(CONCAT(LENGTH({0}), ':', CAST({0} AS BINARY)), '-')",
        DigestKind.BYTES: "COALESCE(CONCAT(2 * LENGTH({0}), ':', LOWER(HEX({0}))), '-')",
        DigestKind.BODY: "CONCAT('64:', SHA2({0}, 256))",
    },
    row_digest=("SHA2(CONCAT(", ", ", "), 256)"),
)
