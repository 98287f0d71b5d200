"""PostgreSQL's driver for Java, which Spark's own export uses."""

from pathlib import Path

JARS = Path("/usr/share/java")
"""Where packages of Debian and Ubuntu put jars. Some name the driver with its version alone."""


def jdbc_driver(jars: Path = JARS) -> Path | None:
    """Return the driver, under its shortest name; None if it is not installed."""
    return min(jars.glob("postgresql*.jar"), key=lambda jar: (len(jar.name), jar.name), default=None)
