"""What happened to every message, kept for good and asked with Spark."""
