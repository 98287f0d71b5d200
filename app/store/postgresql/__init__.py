"""The message store on PostgreSQL."""
