"""The types of columns, as each engine needs them."""

from typing import Any, TypeAlias

from sqlalchemy import BigInteger, Integer, LargeBinary, Text
from sqlalchemy.dialects import mysql
from sqlmodel import String

from app.domain.message import MAX_ID_LENGTH
from app.domain.queue import MAX_NAME_LENGTH

# SQLModel declares this name with a type that type checkers cannot follow.
TableName: TypeAlias = Any

# Names and ids compare byte by byte on every engine; MariaDB would fold case and accents. Names are also listed in
# that order; PostgreSQL would follow the language of its database.
NameType = (
    String(MAX_NAME_LENGTH)
    .with_variant(mysql.VARCHAR(MAX_NAME_LENGTH, collation="utf8mb4_bin"), "mysql", "mariadb")
    .with_variant(String(MAX_NAME_LENGTH, collation="C"), "postgresql")
)
IdType = String(MAX_ID_LENGTH).with_variant(mysql.VARCHAR(MAX_ID_LENGTH, collation="utf8mb4_bin"), "mysql", "mariadb")
# Used where an id alone decides whether two messages are the same: MariaDB's VARCHAR ignores blanks at the end.
ExactIdType = String(MAX_ID_LENGTH).with_variant(mysql.VARBINARY(4 * MAX_ID_LENGTH), "mysql", "mariadb")
ShortString = String(64)
# 64-bit keys. SQLite numbers rows automatically only in a column of type INTEGER.
AutoId = BigInteger().with_variant(Integer(), "sqlite")
BodyType = LargeBinary().with_variant(mysql.LONGBLOB(), "mysql", "mariadb")
LongText = Text().with_variant(mysql.MEDIUMTEXT(collation="utf8mb4_bin"), "mysql", "mariadb")
SecretType = LargeBinary(16).with_variant(mysql.BINARY(16), "mysql", "mariadb")
DigestType = LargeBinary(32).with_variant(mysql.BINARY(32), "mysql", "mariadb")

# SQLite alone would reuse the number of a deleted last row: for a queue that then inherits the rows of the deleted
# one, or for a message whose number the archive already has.
NO_ID_REUSE = {"sqlite_autoincrement": True}
