"""SQL backend: PostgreSQL, MariaDB/MySQL and SQLite implement the same ports."""
