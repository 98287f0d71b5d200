"""Errors for a database that another process serves."""

from pathlib import Path


class FileInUse(Exception):
    """Another process already serves this file."""

    def __init__(self, path: Path, owner: str) -> None:
        process = f"process {owner}" if owner else "another process"
        super().__init__(
            f"{path} is in use by {process}. A SQLite file is served by one process at a time: "
            "stop that process, or use PostgreSQL or MariaDB for several."
        )


class DatabaseInUse(Exception):
    """Processes that do not notify each other would serve one database."""
