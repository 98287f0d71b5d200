"""Opens connections to MariaDB or MySQL: reads the address, sets the session up, checks the server."""

import os
from collections.abc import Mapping
from typing import Any

from asyncmy.constants.CLIENT import FOUND_ROWS
from sqlalchemy.engine import make_url

from app.store.mysql.session import DriverConnection, MysqlSession, translate_errors
from app.store.mysql.templates import Template, templates
from app.store.url import BadStoreUrl, read_connect_timeout

CONNECT_SECONDS = 5

NEEDS_CRYPTOGRAPHY = (
    "This user's password (caching_sha2_password, MySQL 8's default, or sha256_password) must not be sent without TLS: "
    "put ?ssl_ca=... into the database URL, or install the Python package cryptography beside the server."
)
"""Replaces the message of both MySQL drivers when they cannot encrypt the password themselves."""

TLS_FILES = frozenset({"ssl_ca", "ssl_capath", "ssl_cert", "ssl_key"})
TLS_OPTIONS = TLS_FILES | {"ssl_cipher", "ssl_check_hostname"}


class Connector:
    """Opens connections to one database. Each is configured and not lent yet.

    A test passes weakened `statements` to prove that another test notices.
    """

    def __init__(self, url: str, statements: Mapping[str, Template] | None = None) -> None:
        self._options = driver_options(url)
        self._statements = statements or templates()

    async def __call__(self) -> MysqlSession:
        """Open a connection. Raises `StoreUnavailable` if that fails."""
        connection = DriverConnection(**self._options)
        try:
            with translate_errors():
                await connection.connect()
        except RuntimeError as error:
            if "cryptography" not in str(error):
                raise
            raise BadStoreUrl(NEEDS_CRYPTOGRAPHY) from error
        session = MysqlSession(connection, self._statements)
        try:
            await session.configure()
        except BaseException:
            session.terminate()
            raise
        return session


def driver_options(url: str) -> Mapping[str, Any]:
    """Return the driver's connect options, from a URL `mysql://user:password@host:port/database`.

    Options after `?` are those that the migrations' driver also takes: `connect_timeout`, `unix_socket`, `ssl_ca`,
    `ssl_cert` and so on. Refuses unknown options with `BadStoreUrl`, since an ignored option is worse than none. Refuses unreadable
    files too.
    """
    address = make_url(url)
    query = {key: str(value) for key, value in address.query.items()}
    tls: dict[str, Any] = {key.removeprefix("ssl_"): query.pop(key) for key in TLS_OPTIONS & query.keys()}
    for key in sorted(TLS_FILES & address.query.keys()):
        if not os.access(str(address.query[key]), os.R_OK):
            raise BadStoreUrl(f"The database URL names a file that cannot be read: {key}={address.query[key]}.")
    if "check_hostname" in tls:
        tls["check_hostname"] = tls["check_hostname"].lower() == "true"
    socket = query.pop("unix_socket", None)
    connect_seconds = read_connect_timeout(query.pop("connect_timeout", str(CONNECT_SECONDS)))
    if query:
        raise BadStoreUrl(f"The database URL has an unknown option: {', '.join(sorted(query))}.")
    return {
        "host": address.host,
        "port": address.port or 0,
        "user": address.username,
        "password": address.password or "",
        "database": address.database,
        "unix_socket": socket,
        "ssl": tls or None,
        "connect_timeout": connect_seconds,
        "autocommit": True,
        # The row count of an UPDATE includes rows that it matched but did not change.
        "client_flag": FOUND_ROWS,
        "program_name": "peeklock",
    }
