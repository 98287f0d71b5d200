"""Locks from their renewal to their end: by their holder, by time, or by a change of their queue."""
