"""The message store on SQLite."""
