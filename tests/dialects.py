"""The dialect of each engine, for tests that run on several."""

from __future__ import annotations

from collections.abc import Mapping

from app.store.mysql import dialect as mysql
from app.store.postgresql import dialect as postgresql
from app.store.shared.statements import Dialect, Statement
from app.store.sqlite import dialect as sqlite
from app.store.url import EngineName

DIALECTS: Mapping[EngineName, Dialect] = {
    EngineName.POSTGRESQL: postgresql.DIALECT,
    EngineName.MYSQL: mysql.DIALECT,
    EngineName.SQLITE: sqlite.DIALECT,
}


def statements(engine: EngineName) -> Mapping[str, Statement]:
    """Return all statements of an engine by name."""
    return DIALECTS[engine].statements
