"""The room of SQL: PostgreSQL, MariaDB/MySQL and SQLite behind the same ports."""
