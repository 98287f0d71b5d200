"""SQLite's syntax where engines differ, and its own statements."""

from app.store.shared.digest_columns import DigestKind
from app.store.shared.statements import Dialect

DIALECT = Dialect(
    name="sqlite",
    now=":now",
    in_list=r"IN (SELECT value FROM json_each(\1))",
    in_groups=(
        "((queue_id, group_id) IN "
        r"(SELECT json_extract(value, '$.queue_id'), json_extract(value, '$.group_id') FROM json_each(\1)) IS TRUE)"
    ),
    # Only one writer runs at a time.
    for_update="",
    skip_locked="",
    delete_first="""DELETE FROM {table} WHERE ({key}) IN (
SELECT {key} FROM {table}{rows}
)""",
    then_join="CROSS JOIN",
    # A Python function of this process encodes the values.
    digest_terms={
        DigestKind.NUMBER: "{0}",
        DigestKind.TEXT: "{0}",
        DigestKind.BYTES: "{0}",
        DigestKind.BODY: "sha256_hex({0})",
    },
    row_digest=("row_digest(", ", ", ")"),
    # LENGTH counts the characters of a text, and only new versions have OCTET_LENGTH.
    text_length="LENGTH(CAST({} AS BLOB))",
    # Read from the header of the row, without the bytes themselves.
    bytes_length="LENGTH({})",
)
