"""What PostgreSQL, MariaDB and MySQL share: batches of callers, connections and the advisory lock."""
