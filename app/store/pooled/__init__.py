"""Shared by PostgreSQL, MariaDB and MySQL: batches of callers, connections and the advisory lock."""
